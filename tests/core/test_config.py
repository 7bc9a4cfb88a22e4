"""Settings from YAML: strict about names and types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pisa_capc.core.config import check_numbers, differences, from_assignments, from_mapping, parse_json, read_yaml
from pisa_capc.core.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    rate_hz: float = 1.0
    names: tuple[str, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Outer:
    seed: int = 0
    label: str = "x"
    on: bool = False
    limit: float | None = None
    inner: Inner = field(default_factory=Inner)
    by_name: dict[str, Inner] = field(default_factory=dict)


def test_what_is_missing_keeps_its_default() -> None:
    assert from_mapping(Outer, {}) == Outer()


def test_what_has_no_default_is_asked_for_by_name() -> None:
    @dataclass(frozen=True)
    class Needy:
        title: str
        seeds: tuple[int, ...]
        note: str = ""

    with pytest.raises(ConfigError, match=r"^mine: title, seeds missing; expected a value for each.$"):
        from_mapping(Needy, {"note": "x"}, "mine")


def test_every_kind_of_value_is_taken() -> None:
    values = {
        "seed": 3,
        "label": "y",
        "on": True,
        "limit": 2,
        "inner": {"rate_hz": 5, "names": ["a", "b"], "pair": [1, 2]},
        "by_name": {"k": {"rate_hz": 9}},
    }
    found = from_mapping(Outer, values)
    assert found == Outer(3, "y", True, 2.0, Inner(5.0, ("a", "b"), (1.0, 2.0)), {"k": Inner(9.0)})
    assert isinstance(found.inner.rate_hz, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sead": 1}, r"sead: unknown setting 'sead'. Did you mean 'seed'\?"),
        ({"inner": {"rate": 1}}, r"inner.rate: unknown setting 'rate'. Did you mean 'rate_hz'"),
        ({"seed": "one"}, "seed: expected int, found 'one'"),
        ({"seed": True}, "seed: expected int, found True"),
        ({"seed": 1.5}, "seed: expected int, found 1.5"),
        ({"limit": "wide"}, "limit: expected a number, found 'wide'"),
        ({"inner": 3}, "inner: expected a mapping, found int"),
        ({"inner": {"names": "a"}}, "inner.names: expected a list"),
        ({"inner": {"pair": [1]}}, "inner.pair: expected 2 values, found 1"),
        ({"inner": {"pair": [1, "b"]}}, r"inner.pair\[1\]: expected a number"),
        ({"by_name": [1]}, "by_name: expected a mapping"),
        ({"by_name": {"k": {"x": 1}}}, "by_name.k.x: unknown setting"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(Outer, values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "not valid YAML"),
        (b"- 1", "expected a mapping at the top"),
        (b"\xff\xfe\x00", "cannot be read|not valid"),
    ],
)
def test_files_that_are_no_settings_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "scene.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"scene.yaml: ({message})"):
        read_yaml(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read"):
        read_yaml(tmp_path / "none.yaml")


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: !!python/object/apply:os.getcwd []")
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_yaml(path)


def test_assignments_become_a_nested_mapping() -> None:
    found = from_assignments(["a.b.c=1", "a.b.d=3e-4", "a.e=true", "f=word", "g = [1, 2]"])
    assert found == {"a": {"b": {"c": 1, "d": 3e-4}, "e": True}, "f": "word", "g": [1, 2]}


@pytest.mark.parametrize("texts", [["beta"], ["=1"], ["a..b=1"], ["a=1", "a.b=2"], ["a=[1"]])
def test_assignments_that_mean_nothing_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="setting"):
        from_assignments(texts)


def test_differences_are_named_by_their_path_and_nothing_else_is() -> None:
    found = {"seed": 3, "model": {"eta": 0.2, "beta": 1.0}, "gone": {"x": 1}}
    expected = {"seed": 3, "model": {"eta": 0.4, "beta": 1.0}, "new": None}
    assert differences(found, expected) == [("gone.x", 1, None), ("model.eta", 0.2, 0.4)]
    assert differences(found, found) == []


def test_numbers_are_finite_and_not_negative() -> None:
    check_numbers(Inner())
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(
            ConfigError, match=rf"^inner\.rate_hz: expected a finite number, zero or more, found {value}"
        ):
            check_numbers(Inner(rate_hz=value), "inner.")
    with pytest.raises(ConfigError, match=r"^pair: .* found -2\.0"):
        check_numbers(Inner(pair=(1.0, -2.0)))


class TestBounds:
    LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (LAUGHS, "more than 100,000 values, aliases written out"),
            ("a: &a [*a]", "more than 100,000 values"),
            ("a: " + "[" * 5000 + "]" * 5000, "more than 64 deep"),
            ("a: " + "{b: " * 5000, "more than 64 deep"),
            ("a: " + "9" * 400, "a whole number of 1329 bits; expected at most 64"),
            ("#" * (2 << 20), "bytes; expected at most 1,048,576"),
        ],
    )
    def test_yaml_that_would_cost_minutes_or_gigabytes_is_refused(
        self, text: str, message: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError, match=message) as caught:
            read_yaml(path)
        assert len(str(caught.value)) < 500

    def test_aliases_that_save_writing_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text("one: &shared {x: 1}\ntwo: *shared\nthree: {<<: *shared, y: 2}\n")
        assert read_yaml(path) == {"one": {"x": 1}, "two": {"x": 1}, "three": {"x": 1, "y": 2}}

    @pytest.mark.parametrize("text", ["[" * 100_000, "[" * 70 + "]" * 70, "[" + "9" * 400 + "]", '{"a": 9e'])
    def test_json_that_goes_beyond_is_no_json(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"deep|64|Expecting"):
            parse_json(text)

    def test_a_setting_has_the_same_bounds(self) -> None:
        with pytest.raises(ConfigError, match="64 deep"):
            from_assignments(["model.beta=" + "[" * 5000])
