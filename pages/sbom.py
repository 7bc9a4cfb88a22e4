"""The bill of materials of a release, CycloneDX 1.5 in JSON: `python -m pages.sbom FILE`, from the locks alone.

Every package that `make setup`, `make docs` and `make setup-bench` install, with its version and the SHA-256 of each
file that the index has of it. torch has none: its wheel differs from machine to machine.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCKS = {  # and what they are for
    "requirements.lock": "required",
    "requirements-torch.lock": "required",
    "requirements-run.lock": "required",
    "requirements-docs.lock": "optional",
    "requirements-bench.lock": "optional",
}
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def packages(lock: Path) -> dict[tuple[str, str], list[str]]:
    """The hashes of each package of a lock by its name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    own: list[str] = []
    for line in lock.read_text(encoding="utf-8").splitlines():
        if pinned := PINNED.match(line):
            own = found[re.sub(r"[-_.]+", "-", pinned[1]).lower(), pinned[2]] = []
        own += HASH.findall(line)
    return found


def bill() -> dict[str, Any]:
    """Packages that several locks have are listed once, as required where one of them is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    components: dict[tuple[str, str], dict[str, Any]] = {}
    for name, scope in LOCKS.items():
        for (package, version), hashes in packages(ROOT / name).items():
            purl = f"pkg:pypi/{package}@{version}"
            listed = [{"alg": "SHA-256", "content": content} for content in sorted(hashes)]
            components.setdefault(
                (package, version),
                {
                    **{"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl},
                    **{"scope": scope, **({"hashes": listed} if listed else {})},
                },
            )
    own = {"type": "application", "name": project["name"], "version": project["version"], "bom-ref": project["name"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"license": {"id": project["license"]}}]}},
        "components": [components[key] for key in sorted(components)],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
    print(f"{sys.argv[1]}: {len(bill()['components'])} packages")
