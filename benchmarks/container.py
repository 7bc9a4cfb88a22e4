"""The container of a receiver: its size, its user, and whether what a receiver does runs in it.

    buildah bud -t pisa -f examples/listen/Containerfile .
    make bench-container [ARGS="--image pisa"]

The size is that of the layers as they lie on the disk; the aim is 1.5 GB. Within the container, as its own user, radios
are simulated, a model is trained, and a recording of the same radios is listened to. Without a registry, a base comes
from Debian's packages: `debootstrap --variant=minbase bookworm FOLDER`, `buildah from scratch`, `buildah add`, and
`buildah bud --build-arg BASE=IT`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from typing import Any

from benchmarks.report import begin, show
from pisa_capc.core.errors import DataError

SET = "wifi-own-place --scene examples/demo_scene.yaml"
RUNS = {
    "not root, and nothing to write but its own folder": 'test "$(id -u)" != 0 && ! touch /opt/there 2>/dev/null',
    "no compiler, no pip": "! command -v gcc && ! command -v pip",
    "sources, page and notifications": 'python3 -c "import zmq, fastapi, uvicorn, apprise"',
    "simulate radios": f"pisa simulate {SET} --scale 0.02 --out wifi",
    "train": "pisa train wifi --source E2,E3 --target E1 --out run",
    "simulate a recording": f"pisa simulate {SET} --recording 0.1 --environment E1 --out recordings",
    "listen": "pisa listen file:recordings/E1-L1-0.sigmf-data --run run --sample-rate 20e6 --format cf32 --antennas 4",
}


def buildah(*arguments: str) -> str:
    try:
        done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DataError(
            "buildah is not there. Install it (Debian: apt install buildah), and build the image."
        ) from None
    if done.returncode:
        raise DataError(f"buildah {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="localhost/pisa", help="what was built (localhost/pisa)")
    image = parser.parse_args().image
    about = json.loads(buildah("inspect", "--type", "image", image))
    layers = [layer["size"] for layer in json.loads(about["Manifest"])["layers"]]
    container = buildah("from", image).strip()
    rows: list[dict[str, Any]] = []
    try:
        for what, command in RUNS.items():
            begun = time.perf_counter()
            buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", f"cd /state && {command}")
            rows.append({"what": what, "seconds": time.perf_counter() - begun})
    finally:
        buildah("rm", container)
    facts = {"image_bytes": sum(layers), "layers_bytes": layers, "user": about["OCIv1"]["config"]["User"]}
    show("Container", rows, facts)


if __name__ == "__main__":
    begin(main)
