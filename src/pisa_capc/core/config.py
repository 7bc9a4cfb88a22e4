"""Frozen dataclasses from plain mappings (YAML), strictly: an unknown key is an error."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from pisa_capc.core.errors import ConfigError, unknown_name

T = TypeVar("T")

# Far beyond any description of ours; reading more could take minutes or gigabytes.
LONGEST = {"JSON": 64 << 20, "YAML": 1 << 20}  # bytes of text
DEEPEST = 64  # lists and mappings in one another
MOST_NODES = 100_000  # of YAML, each alias counted as all that it stands for
WHOLE_NUMBERS = range(-(1 << 63), 1 << 64)


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build dataclass `cls` from `values`; missing keys keep their defaults, unknown keys are errors.

    `where` is the dotted path so far and appears in messages. All faults are told at once, a line each.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or cls.__name__}: expected a mapping, found {type(values).__name__}.")
    hints = _hints(cls)  # type: ignore[arg-type]
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    chosen: dict[str, Any] = {}
    faults = []
    for key, value in values.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in names:
            faults.append(f"{path}: " + unknown_name("setting", str(key), names))
            continue
        try:
            chosen[key] = _convert(hints[key], value, path)
        except ConfigError as error:
            faults.append(str(error))
    absent = [field.name for field in dataclasses.fields(cls) if _is_required(field) and field.name not in values]  # type: ignore[arg-type]
    if absent:
        faults.append(f"{where and f'{where}: '}{', '.join(absent)} missing; expected a value for each.")
    refuse(faults)
    try:
        return cls(**chosen)
    except TypeError as error:
        raise ConfigError(f"{where or cls.__name__}: {error}.") from error


def refuse(faults: Iterable[str], where: str = "") -> None:
    """Raise the faults, if any, as one error with a line each. where: the beginning of every line."""
    if lines := dict.fromkeys(faults):
        raise ConfigError("\n".join(f"{where}{line}" for line in lines))


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """The types of its fields; they are texts, and to compile them takes longer than all the rest."""
    return typing.get_type_hints(cls)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def from_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """The nested mapping that assignments of dotted names mean.

    >>> from_assignments(["model.beta=0.5", "training.learning_rate=3e-4", "model.pathway=topology"])
    {'model': {'beta': 0.5, 'pathway': 'topology'}, 'training': {'learning_rate': 0.0003}}
    """
    values: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        *parents, name = path.strip().split(".")
        if not equals or not name or not all(parents):
            raise ConfigError(f"setting {text!r}: expected name=value, as model.beta=0.5.")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"setting {text!r}: {parent} was already given a value of its own.")
        inner[name] = _value(value)
    return values


def parse_json(text: str) -> Any:
    """The value of JSON text; ValueError where it is none, or goes beyond the bounds."""
    _check_length(text, "JSON")
    try:
        return _bounded(json.loads(text))
    except RecursionError:
        raise ValueError(f"lists and mappings more than {DEEPEST} deep") from None


def parse_yaml(text: str) -> Any:
    """The value of YAML text; ValueError where it is none, or goes beyond the bounds."""
    _check_length(text, "YAML")
    try:
        _check_nodes(text)
        return _bounded(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check_length(text: str, kind: str) -> None:
    if len(text) > LONGEST[kind]:
        raise ValueError(f"{len(text):,} characters; expected at most {LONGEST[kind]:,}")


def _bounded(value: Any, depth: int = 0) -> Any:
    """The value itself, if it is not too deep and holds no whole number that 64 bits do not."""
    if depth > DEEPEST:
        raise ValueError(f"lists and mappings more than {DEEPEST} deep")
    if isinstance(value, dict):
        for inner in (*value, *value.values()):
            _bounded(inner, depth + 1)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            _bounded(inner, depth + 1)
    elif isinstance(value, int) and value not in WHOLE_NUMBERS:
        raise ValueError(f"a whole number of {value.bit_length()} bits; expected at most 64")
    return value


def _check_nodes(text: str) -> None:
    """Refuse YAML that is too deep, or in which aliases stand for too much."""
    sizes: dict[str, int] = {}  # what each anchor stands for
    counts, anchors = [0], [""]  # of the collections that are open
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor or "")
        elif isinstance(event, yaml.CollectionEndEvent):
            size, anchor = counts.pop(), anchors.pop()
            sizes[anchor] = size
            counts[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            counts[-1] += sizes.get(event.anchor or "", MOST_NODES)  # an alias within its own anchor has no end
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
        if len(counts) > DEEPEST:
            raise ValueError(f"lists and mappings more than {DEEPEST} deep")
        if counts[-1] > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES:,} values, aliases written out")


def _value(text: str) -> Any:
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"setting value {text!r}: not valid YAML ({error}).") from error
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)  # YAML takes 3e-4, without a point, for a word
    return value


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, path)
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else from_mapping(hint, value, path)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{path}: expected a list, found {value!r}.")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_each((arguments[0], v, f"{path}[{i}]") for i, v in enumerate(value)))
        if len(value) != len(arguments):
            raise ConfigError(f"{path}: expected {len(arguments)} values, found {len(value)}.")
        return tuple(_convert(a, v, f"{path}[{i}]") for i, (a, v) in enumerate(zip(arguments, value, strict=True)))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: expected a mapping, found {value!r}.")
        return dict(zip(value, _each((arguments[1], v, f"{path}.{k}") for k, v in value.items()), strict=True))
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint in (int, str, bool) and type(value) is not hint:
        raise ConfigError(f"{path}: expected {hint.__name__}, found {value!r}.")
    if hint is float:
        raise ConfigError(f"{path}: expected a number, found {value!r}.")
    return value


def _each(given: Iterable[tuple[Any, Any, str]]) -> list[Any]:
    """Values converted as by `_convert`; the faults of all of them are one error."""
    found, faults = [], []
    for one in given:
        try:
            found.append(_convert(*one))
        except ConfigError as error:
            faults.append(str(error))
    refuse(faults)
    return found


def check_numbers(settings: Any, where: str = "") -> None:
    """Refuse numbers of a dataclass of settings, alone or in tuples, that are negative, NaN or infinite.

    No weight, width, scale or rate of these methods has a meaning below zero.
    """
    for name, value in vars(settings).items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not 0 <= number < math.inf:
                raise ConfigError(f"{where}{name}: expected a finite number, zero or more, found {number}.")


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the settings of `over` laid over it, level by level."""
    values = dict(base)
    for key, value in over.items():
        inner = values.get(key)
        values[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return values


def differences(found: Mapping[str, Any], expected: Mapping[str, Any], path: str = "") -> list[tuple[str, Any, Any]]:
    """What differs between two nested mappings: the setting's dotted name, what was found and what was expected.

    >>> differences({"model": {"eta": 0.2, "beta": 1}, "seed": 3}, {"model": {"eta": 0.4, "beta": 1}, "seed": 3})
    [('model.eta', 0.2, 0.4)]
    """
    different = []
    for key in sorted({*found, *expected}):
        here, there = found.get(key), expected.get(key)
        if all(isinstance(value, Mapping) or value is None for value in (here, there)):
            different += differences(here or {}, there or {}, f"{path}{key}.")
        elif here != there:
            different.append((f"{path}{key}", here, there))
    return different


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, with errors that name the file."""
    try:
        if path.stat().st_size > LONGEST["YAML"]:
            raise ConfigError(f"{path}: {path.stat().st_size:,} bytes; expected at most {LONGEST['YAML']:,}.")
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML ({error}).") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping at the top, found {type(values).__name__}.")
    return values
