"""A receiver that says who is on the air."""

from pisa_capc.listen.events import Alarm, Decision, Event, Status
from pisa_capc.listen.listener import Listener

__all__ = ["Alarm", "Decision", "Event", "Listener", "Status"]
