"""Tell Home Assistant about the devices of a run: a problem sensor for every device and kind of alarm.

    python examples/listen/home_assistant.py run mqtt://me:password@broker/pisa/roof
    pisa listen zmq:tcp://127.0.0.1:5555 --run run --notify mqtt://me:password@broker/pisa/roof

Once is enough: the broker keeps what is published here. Home Assistant finds it by MQTT discovery
(https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery); a sensor is on while an alarm is open.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence

from pisa_capc import load_model
from pisa_capc.live.listen.events import CHANGED, NOT_ITS_ADDRESS, SHARED_ADDRESS
from pisa_capc.live.notify.mqtt import Mqtt, topic_part

KINDS = (NOT_ITS_ADDRESS, SHARED_ADDRESS, CHANGED)


def discovery(prefix: str, devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Topic and content of each sensor. prefix: as `--notify mqtt://…/PREFIX` has it."""
    receiver = re.sub(r"[^\w-]", "_", prefix)
    for number, device in enumerate(devices):
        for kind in KINDS:
            own = f"{number}_{kind.replace(' ', '_')}"
            topic = f"{prefix}/devices/{topic_part(device)}/{kind.replace(' ', '-')}"
            sensor = {
                "name": f"{device}: {kind}",
                "unique_id": f"{receiver}_{own}",
                "device_class": "problem",
                "state_topic": topic,
                "value_template": "{{ 'ON' if value_json.state == 'open' else 'OFF' }}",
                "json_attributes_topic": topic,
                "availability_topic": f"{prefix}/availability",
                "device": {"identifiers": [receiver], "name": f"PISA-CAPC {prefix}"},
            }
            yield f"homeassistant/binary_sensor/{receiver}/{own}/config", json.dumps(sensor)


def main(run: str, url: str) -> None:
    broker = Mqtt(url)
    for topic, content in discovery(broker.prefix, load_model(run).devices):
        broker.publish(topic, content.encode(), kept=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python home_assistant.py RUN mqtt://HOST/PREFIX")
    main(*sys.argv[1:])
