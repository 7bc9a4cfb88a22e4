"""The settings of protocols and scenes with their defaults, from the dataclasses and the built-in files themselves."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import cleandoc, getsource
from pathlib import Path
from typing import Any

from pages.against_paper import markdown_table as table
from pisa_capc.core.config import read_yaml
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import SplitRule
from pisa_capc.decide.calibration import CALIBRATIONS
from pisa_capc.evidence.benchmark.protocols import (
    DataSource,
    Direction,
    MethodPlan,
    Protocol,
    Search,
    Simulated,
    Strangers,
)
from pisa_capc.model.methods import METHODS
from pisa_capc.model.methods.pisa import PisaSettings
from pisa_capc.model.training import TrainingConfig
from pisa_capc.signal.simulation.hardware import HardwareSpread, Spread
from pisa_capc.signal.simulation.receiver import FrequencySpread
from pisa_capc.signal.simulation.scene import (
    CaptureSetting,
    Environment,
    Propagation,
    Receiver,
    Scene,
    Signal,
    scene_file,
    scene_names,
)

REQUIRED = "required"
WHOLE = ("The file", "A distribution")  # parts that no key of a scene leads to
INTERNAL = ("name", "given")  # of a protocol: what its file is called


def protocol_page() -> str:
    parts = {
        "The file": Protocol,
        "dataset": DataSource,
        "dataset.simulate": Simulated,
        "dataset.strangers": Strangers,
        "directions": Direction,
        "split": SplitRule,
        "training": TrainingConfig,
        "methods": MethodPlan,
        "deployments": Deployment,
        "search": Search,
    }
    sections = [f"## {name}\n\n{settings(kind)}" for name, kind in parts.items()]
    return f"""# Protocol files

One YAML file is one experiment: `pisa bench run FILE.yaml`. `pisa bench new FILE.yaml` writes one with every setting
filled in. What has a default may be left out, and the settings of a method or calibration all together; records have
them anyway. An unknown key is an error, and all errors of a file are reported at once. [Your own
benchmark](../gallery/plot_benchmark.rst) writes one and runs it; `protocols/` has those of the results.

```yaml
{text(Path("protocols/wifi-place.yaml"))}```

{chr(10).join(sections)}
## Settings of the methods

`methods[].settings`; what each method is, `pisa methods` and the [API](api.rst) say.

{chr(10).join(method_settings())}
## Settings of the calibrations

`calibration.STAGE`, beside `method`, the name below; also `pisa calibrate --calibration NAME --set …`.

{chr(10).join(f"### {name}{chr(10)}{chr(10)}{flat_settings(CALIBRATIONS[name])}" for name in CALIBRATIONS)}"""


def scene_page() -> str:
    parts = {
        "The file": Scene,
        "waveform": Signal,
        "receiver": Receiver,
        "hardware": HardwareSpread,
        "frequency": FrequencySpread,
        "propagation": Propagation,
        "environments.NAME": Environment,
        "captures.NAME": CaptureSetting,
        "A distribution": Spread,
    }
    sections = [
        f"## {name}\n\n{settings(kind, scene_examples(name), scene_comments(name))}" for name, kind in parts.items()
    ]
    built_in = ", ".join(f"`{name}`" for name in scene_names())
    return f"""# Scene files

A scene says who transmits what, where, and through which channel. Built in are {built_in}, each a YAML file with the
source of every value beside it (`src/pisa_capc/signal/simulation/scenes/`). `pisa simulate wifi --scene mine.yaml` lays
the settings of `mine.yaml` over a built-in scene, level by level, so that a file names only what is different;
`pisa simulate mine.yaml` takes all of them from the file. In the tables the columns `wifi` and `lora` are the values
of these scenes, of their first environment and their first capture; what is in brackets is the source of the value in
`wifi`.

```yaml
{text(Path("examples/demo_scene.yaml"))}```

{chr(10).join(sections)}
## Sources

```
{sources(scene_file("wifi"))}
```
"""


def settings(
    kind: type, examples: Mapping[str, Mapping[str, str]] | None = None, notes: Mapping[str, str] | None = None
) -> str:
    """A dataclass as a table: its settings, their types and defaults, and their meaning.

    examples: by the heading of a column, values. notes: what else there is to say of a setting.
    """
    about = meanings(kind)
    for name, note in (notes or {}).items():
        about[name] = " ".join(filter(None, [about.get(name), note]))
    rows = []
    for setting in _shown(kind):
        values = [column.get(setting.name, "") for column in (examples or {}).values()]
        default = [] if examples else [_default(setting)]
        rows.append(
            [f"`{setting.name}`", f"`{type_name(kind, setting)}`", *default, *values, about.get(setting.name, "")]
        )
    heading = ["setting", "type", *([] if examples else ["default"]), *(examples or {}), "meaning"]
    lead = _summary(kind)
    return f"{lead}\n\n{table(heading, rows)}\n"


def flat_settings(kind: type, based_on: type | None = None) -> str:
    """The same of settings within settings, by their dotted names. based_on: whose settings are not repeated."""
    known = {name for name, *_ in _flat(based_on, "")} if based_on else set()
    rows = [[f"`{name}`", f"`{found}`", *more] for name, found, *more in _flat(kind, "") if name not in known]
    shown = table(["setting", "type", "default", "meaning"], rows) if rows else "None of its own."
    return "\n\n".join(filter(None, [_summary(kind), "Those of `pisa`, and:" if based_on else "", shown])) + "\n"


def method_settings() -> Iterator[str]:
    for name in METHODS:
        kind = METHODS[name].Settings
        extends = PisaSettings if issubclass(kind, PisaSettings) and kind is not PisaSettings else None
        yield f"### {name}\n\n{flat_settings(kind, extends)}"


def scene_examples(part: str) -> dict[str, dict[str, str]] | None:
    """What the scenes of Wi-Fi and LoRa have there."""
    if part in WHOLE:
        return None
    found = {}
    for name in ("wifi", "lora"):
        values: Any = read_yaml(scene_file(name))
        for key in first_path(part, values):
            values = values[key]
        found[name] = {key: _value(value) for key, value in values.items()}
    return found


def scene_comments(part: str) -> dict[str, str]:
    """What the Wi-Fi scene remarks beside its values there."""
    path = scene_file("wifi")
    inside = () if part in WHOLE else first_path(part, read_yaml(path))
    return {key[-1]: words for key, words in comments(path).items() if key[:-1] == inside}


def first_path(part: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """`environments.NAME` as the way to the scene's first environment."""
    path: list[str] = []
    for key in part.split("."):
        path.append(next(iter(values)) if key == "NAME" else key)
        values = values[path[-1]]
    return tuple(path)


def comments(path: Path) -> dict[tuple[str, ...], str]:
    """The remarks behind the values of a YAML file, by the keys that lead to each."""
    found = {}
    keys: list[tuple[int, str]] = []  # with their indentation, from the outermost to that of the line
    for line in text(path).splitlines():
        if mark := re.match(r"( *)([\w-]+):[^#]*(?:# ?(.*))?$", line):
            keys = [key for key in keys if key[0] < len(mark[1])] + [(len(mark[1]), mark[2])]
            if mark[3]:
                found[tuple(name for _, name in keys)] = mark[3].strip()
    return found


def sources(path: Path) -> str:
    """The list of sources at the head of a scene's file."""
    lines = text(path).split("# Sources\n")[1].split("\n\n")[0].splitlines()
    return "\n".join(line.removeprefix("#").strip() for line in lines)


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def meanings(kind: type) -> dict[str, str]:
    """The meaning of each setting, from the class or a base class: beside it, or in the docstring.

    There it stands as `name: words` or, in an indented list, `name  words`.

    >>> meanings(Propagation)["rays"][:50]
    'the delays, directions, powers and Doppler shifts '
    """
    about = beside(kind)
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            about |= _in_docstring(base)
    return {name: words.replace("|", "\\|") for name, words in about.items()}


def beside(kind: type) -> dict[str, str]:
    """What stands behind each setting in the source of a dataclass and of those that it extends."""
    about: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            about |= re.findall(r"(?m)^    (\w+): [^#\n]*# (?!type: )(.+)$", getsource(base))
    return about


def _in_docstring(kind: type) -> dict[str, str]:
    names = {setting.name for setting in fields(kind)}
    doc = re.sub(r"\n {4}(\w+)  +", r"\n\1: ", _doc(kind))
    marks = [m for m in re.finditer(r"(?:^|(?<=[.;\s]))((?:\w+, )*\w+):\s", doc) if set(m[1].split(", ")) <= names]
    about = {}
    ends = [mark.start() for mark in marks][1:] + [len(doc)] * bool(marks)
    for mark, end in zip(marks, ends, strict=True):
        words = " ".join(doc[mark.end() : end].split("\n\n")[0].split())
        about |= {name: words.rstrip(";") for name in mark[1].split(", ")}
    return about


def _doc(kind: type) -> str:
    """The docstring, unless it was generated."""
    doc = cleandoc(kind.__doc__ or "")
    return "" if doc.startswith(f"{kind.__name__}(") else doc


def type_name(kind: type, setting: Field[Any]) -> str:
    """As a person would write it: dataclasses by their name, no module in front."""
    hint = typing.get_type_hints(kind)[setting.name]
    name = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", name).replace("|", "or").replace(", ...", ", …")


def _flat(kind: type, path: str) -> Iterator[tuple[str, str, str, str]]:
    about = meanings(kind)
    hints = typing.get_type_hints(kind)
    for setting in _shown(kind):
        inner = hints[setting.name]
        if is_dataclass(inner) and isinstance(inner, type):
            yield from _flat(inner, f"{path}{setting.name}.")
        else:
            yield (
                f"{path}{setting.name}",
                type_name(kind, setting),
                _default(setting),
                about.get(setting.name, ""),
            )


def _shown(kind: type) -> list[Field[Any]]:
    return [f for f in fields(kind) if f.init and not (kind is Protocol and f.name in INTERNAL)]


def _summary(kind: type) -> str:
    """The first paragraph of its docstring, without the settings."""
    first = _doc(kind).split("\n\n")[0]
    names = "|".join(setting.name for setting in fields(kind)) or "-"
    return re.split(rf"(?:^|(?<=[.\s]))(?:(?:{names}), )*(?:{names}):\s", first)[0].strip()


def _default(setting: Field[Any]) -> str:
    if setting.default is not MISSING:
        return _value(setting.default)
    if setting.default_factory is not MISSING:
        return _value(setting.default_factory())
    return REQUIRED


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"mean", "std", "low", "high"}:
        return f"{value['mean']:g} ± {value['std']:g} in [{value['low']:g}, {value['high']:g}]"
    if is_dataclass(value):
        return "its defaults"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple | list) else str(value)
