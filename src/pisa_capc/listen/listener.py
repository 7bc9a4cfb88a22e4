"""A listener: samples in, events out, until it is stopped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pisa_capc.inference import TrainedModel
from pisa_capc.listen.events import OnEvent, Status


class Listener:
    """Says who is on the air.

    `run` is for one thread; everything else may be called from any other while it runs.
    """

    @property
    def model(self) -> TrainedModel:
        """The model that decides now."""
        raise NotImplementedError

    @property
    def sample_rate_hz(self) -> float:
        """Of the frames that `frame` gives: that of the waveform."""
        raise NotImplementedError

    def run(self, on_event: OnEvent) -> None:
        """Listen until the source ends or `stop` is called; events are handed over at once, in the order of time."""
        raise NotImplementedError

    def stop(self) -> None:
        """End `run` soon: what was received is still decided, and the state is kept."""
        raise NotImplementedError

    def status(self) -> Status:
        raise NotImplementedError

    def frame(self, number: int) -> tuple[NDArray[np.complex64], NDArray[np.float64]] | None:
        """(A, T) samples of a recent frame from its preamble on, as received, and its carrier offset (A,) in Hz.

        By the number of its decision; None where it is no longer kept.
        """
        raise NotImplementedError

    def exchange(self, model: TrainedModel) -> None:
        """Decide with another model from the next frame on; of the same array and waveform. No sample is missed."""
        raise NotImplementedError
