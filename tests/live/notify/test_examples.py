"""The examples for Home Assistant and Grafana name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from examples.listen.home_assistant import KINDS, discovery

from pisa_capc.live.notify import open_sink
from pisa_capc.live.serve.memory import Memory
from pisa_capc.live.serve.metrics import metrics
from tests.live.notify.broker import Broker
from tests.live.serve.fake import DEVICES, QUIET, an_alarm

EXAMPLES = Path(__file__).parents[3] / "examples/listen"


def test_every_metric_of_the_dashboard_is_given() -> None:
    given = set(re.findall(r"^(pisa_\w+)", metrics(QUIET, Memory(), ["D1"], 0), re.M))
    panels = json.loads((EXAMPLES / "grafana.json").read_text())["panels"]
    asked = {name for panel in panels for one in panel["targets"] for name in re.findall(r"pisa_\w+", one["expr"])}
    assert asked <= given
    assert len(asked) > 10


def test_sensors_of_home_assistant_look_where_alarms_are_published() -> None:
    broker = Broker()
    sink = open_sink(f"mqtt://127.0.0.1:{broker.port}/pisa/roof")
    for number, kind in enumerate(KINDS):
        sink.send(an_alarm(number, kind=kind))
    published = {topic for topic, _, kept in broker.messages if kept}
    sensors = [json.loads(content) for _, content in discovery("pisa/roof", DEVICES)]
    assert len({sensor["unique_id"] for sensor in sensors}) == len(DEVICES) * len(KINDS)
    looked_at = {sensor[name] for sensor in sensors[: len(KINDS)] for name in ("state_topic", "availability_topic")}
    assert looked_at == published
