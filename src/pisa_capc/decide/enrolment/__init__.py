"""Adding and removing devices without retraining: only the classifier and the statistics of the model change.

row         the classifier's row of a new device
statistics  what the model knows of its devices, with one more or one less
alike       whether frames sound like a device that is there already
change      `enrol` and `remove`, model to model
datasets    the frames of a device in datasets
following   `update`: the same with newer frames of a device
"""

from pisa_capc.decide.enrolment.alike import sounds_like
from pisa_capc.decide.enrolment.change import enrol, remove
from pisa_capc.decide.enrolment.datasets import device_in_datasets
from pisa_capc.decide.enrolment.following import update
from pisa_capc.decide.enrolment.row import within_ridge
from pisa_capc.decide.enrolment.statistics import recognised

__all__ = ["device_in_datasets", "enrol", "recognised", "remove", "sounds_like", "update", "within_ridge"]
