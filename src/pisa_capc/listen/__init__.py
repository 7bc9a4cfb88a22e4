"""A receiver that says who is on the air.

sources, zeromq, tags   where samples come from as they are received
ring                    what is between them and the listener
ears, hearing           samples → frames, in a thread of its own
receiver, watch, meter  whether the receiver does well, and how fast it is
senders, recognise      frames → devices
claims, mind            tests that run as long as the listener does, and what they say of a frame
alarms, state           what is kept
plan, listener          all of it, until it is stopped
events                  what it says
"""

from pisa_capc.listen.events import Alarm, Decision, Event, Status
from pisa_capc.listen.listener import Listener
from pisa_capc.listen.plan import Air, Plan
from pisa_capc.listen.recognise import Choices
from pisa_capc.listen.sources import Source, encoding_of, open_source

__all__ = [
    "Air",
    "Alarm",
    "Choices",
    "Decision",
    "Event",
    "Listener",
    "Plan",
    "Source",
    "Status",
    "encoding_of",
    "open_source",
]
