"""What the room gives away: one protocol on five ways to place devices in a room, on either waveform.

    make study-placement ARGS="--device cuda --workers 2"

Each way is the scene `*-own-place` with some of its settings laid over (`WAYS`). Records go to
`results/records/placement`, one dataset each; a stopped study goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.run import Options, run_protocol
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.simulation.scene import load_scene

PROTOCOL = Path(__file__).with_suffix(".yaml")
WAVEFORMS = ("wifi", "lora")
MOVES = {"moving_fraction": 1.0}  # all of the scattered field, instead of a tenth
# By name: whose the rays are, whose their phases, and whether every scattered ray moves.
WAYS: dict[str, tuple[str, str, bool]] = {
    "device": ("device", "device", False),
    "place-device-phases": ("place", "device", False),
    "place-device-phases-moving": ("place", "device", True),
    "place": ("place", "place", False),
    "place-moving": ("place", "place", True),
}


def settings(scene: str, way: str) -> dict[str, Any]:
    """What is laid over the scene."""
    rays, phases, moving = WAYS[way]
    over: dict[str, Any] = {"propagation": {"rays": rays, "phases": phases}}
    if moving:
        over["captures"] = dict.fromkeys(load_scene(scene).captures, MOVES)
    return over


def make(waveform: str, way: str, work: Path, scale: float) -> Path:
    """The set of one way, made first where it is not there; records name it by its folder."""
    scene = f"{waveform}-own-place"
    folder = work / "data" / f"{waveform}-{way}"
    path = folder.parent / f"{folder.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, yaml.safe_dump(settings(scene, way)))
    generate(scene, folder, seed=2026, scale=scale, scene=path)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/records"))
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--waveform", choices=WAVEFORMS, nargs="*", default=WAVEFORMS)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1.0)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    protocol = read_protocol(str(PROTOCOL))
    for waveform in options.waveform:
        for way in WAYS:
            data = make(waveform, way, options.work, options.scale)
            run_protocol(
                protocol,
                Options(
                    data=data,
                    results=options.results,
                    work=options.work,
                    device=options.device,
                    workers=options.workers,
                ),
            )


if __name__ == "__main__":
    main()
