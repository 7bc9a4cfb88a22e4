"""Alarms of a listener, delivered to people and to other programs.

base      what a sink of alarms is, and the registry of them
delivery  the alarms that wait for a sink, in a thread of its own
plain     commands, webhooks, and everything that Apprise reaches
mqtt      MQTT, with topics like rtl_433's
"""

from pisa_capc.live.notify.base import ALARM_SINKS, AlarmSink, open_sink, register_sink
from pisa_capc.live.notify.delivery import Notifier

from pisa_capc.live.notify import mqtt, plain  # noqa: F401  isort:skip  (they register)

__all__ = ["ALARM_SINKS", "AlarmSink", "Notifier", "open_sink", "register_sink"]
