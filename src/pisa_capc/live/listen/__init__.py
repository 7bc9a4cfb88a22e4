"""A receiver that reports which devices are transmitting.

sources                 where samples come from as they are received
ring                    what is between them and the listener
finder, finder_process  samples → frames, in a thread or a process of its own; hearing: how
receiver, watch         whether the receiver does well, and how fast it is
senders, recognise      frames → devices
claims, verifier        tests that run as long as the listener does, and what they say of a frame
alarms, state           what is kept
plan, listener          all of it, until it is stopped
events                  what it says
"""

from typing import TYPE_CHECKING, Any

from pisa_capc.core.moved import by_old_name

if TYPE_CHECKING:
    from pisa_capc.live.listen.events import Alarm, Event, Status
    from pisa_capc.live.listen.listener import Listener
    from pisa_capc.live.listen.plan import Air, ListenPlan
    from pisa_capc.live.listen.recognise import LiveChoices
    from pisa_capc.live.listen.sources import (
        Source,
        SourceKind,
        StreamSettings,
        encoding_of,
        open_source,
        open_stream,
        register_source,
    )

__all__ = [
    "Air",
    "Alarm",
    "Event",
    "ListenPlan",
    "Listener",
    "LiveChoices",
    "Source",
    "SourceKind",
    "Status",
    "StreamSettings",
    "encoding_of",
    "open_source",
    "open_stream",
    "register_source",
]

# Imported when it is first asked for: the process that finds frames does without PyTorch.
_LAZY = {
    "events": ("Alarm", "Event", "Status"),
    "listener": ("Listener",),
    "plan": ("Air", "ListenPlan"),
    "recognise": ("LiveChoices",),
    "sources": (
        "Source",
        "SourceKind",
        "StreamSettings",
        "encoding_of",
        "open_source",
        "open_stream",
        "register_source",
    ),
}
_OLD = {"Decision": "pisa_capc.FoundFrame", "Plan": "ListenPlan", "Choices": "LiveChoices"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    return by_old_name(__name__, _OLD, name)
