"""A receiver that says who is on the air.

sources, zeromq, tags   where samples come from as they are received
ring                    what is between them and the listener
hearing, receiver       samples → frames; whether the receiver does well
senders, recognise      frames → devices
claims                  tests that run as long as the listener does
alarms, state           what is kept
listener                all of it, until it is stopped
events                  what it says
"""

from pisa_capc.listen.events import Alarm, Decision, Event, Status
from pisa_capc.listen.listener import Air, Listener, Plan
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
