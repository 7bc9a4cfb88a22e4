"""The protocols of the paper say everything, and say what the code does by default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.geometry import square
from pisa_capc.data.protocol import FEW_SHOT, VALIDATION
from pisa_capc.decide.calibration import PRESETS, UCAPC, calibrator, calibrators
from pisa_capc.evidence.benchmark.plan import plain, plan
from pisa_capc.evidence.benchmark.protocols import check_protocol, is_guarded, read_protocol
from pisa_capc.model.encoders import encoder_names
from pisa_capc.model.methods import Setup, build_method, method_names
from pisa_capc.model.methods.pisa import PisaMethod
from pisa_capc.model.training import TrainingConfig
from pisa_capc.signal.simulation.generate import DEFAULT_SEED
from tests.evidence.benchmark.tools import PROTOCOLS, QUICK, ROOT, quick, write_protocol

NAMES = sorted(path.stem for path in PROTOCOLS.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_written_settings_are_the_defaults_of_the_code(name: str) -> None:
    protocol = read_protocol(name)
    check_protocol(protocol)
    assert protocol.training == TrainingConfig()
    held_out = {"held_out": "block"} if name == "block-place" else {}  # which is its subject
    assert protocol.split.to_json() == {"validation": VALIDATION, "few_shot": FEW_SHOT, **held_out}
    assert protocol.dataset.simulate is None or protocol.dataset.simulate.seed == DEFAULT_SEED
    grid = protocol.search.grid if protocol.search else {}
    for row in protocol.methods:
        built = build_method(row.method, Setup(10, "cnn", square(), source_environments=(0, 1)))
        chosen = {key: row.settings[key] for key in grid.get(row.method, {})}
        assert row.settings == plain({**built.describe(), **chosen})
        assert all(value in grid[row.method][key] for key, value in chosen.items())
        assert all(row.variants[variant] == built.variants[variant] for variant in row.variants)
    for stage, settings in protocol.calibration.items():
        if stage in protocol.dropped:
            assert settings == {"method": "safe", "group": "capture"}  # as the records were made
            continue
        default = PRESETS[stage] if settings["method"] == "ucapc" else calibrator(settings["method"])(group="capture")
        expected = {"method": settings["method"], **asdict(default)}
        assert settings == {k: v for k, v in expected.items() if k != "workspace_mib"}


def test_one_word_each_for_direct_and_safe(tmp_path: Path) -> None:
    for name in NAMES:
        for stage, settings in read_protocol(name).calibration.items():
            assert (stage == "safe") == is_guarded(settings) == (settings["method"] == "safe")
    unnamed, direct = {"guard": True, "group": "capture"}, {"method": "direct", "group": "none"}
    refused(tmp_path, "calibration.old.method: missing. Name a calibration", calibration={"old": unnamed})
    refused(tmp_path, "direct is the stage without calibration", calibration={"direct": direct})


def test_any_calibrator_can_be_a_stage(tmp_path: Path) -> None:
    for name, kind in calibrators().items():
        settings = {"method": name, **asdict(kind())}
        settings.pop("workspace_mib", None)
        check_protocol(quick(tmp_path, changes={**QUICK, "calibration": {"mine": settings}}))
    refused(
        tmp_path,
        "calibration.mine.method: unknown calibration 'lames'. Did you mean 'lame'?",
        calibration={"mine": {"method": "lames"}},
    )
    refused(tmp_path, "calibration.mine.neighbours: missing", calibration={"mine": {"method": "lame", "group": "none"}})


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_the_nine_runs_of_the_paper(name: str) -> None:
    runs = plan(read_protocol(name))
    seeds = {(s, t) for s in (2026, 2027, 2028) for t in (2026, 2027, 2028)}
    for cell in {run.cell for run in runs}:
        assert {(run.split_seed, run.seed) for run in runs if run.cell == cell} == seeds


def test_the_paper_is_covered() -> None:
    assert len(plan(read_protocol("wifi-sim"))) == 7 * 9 * 2
    assert sorted(read_protocol("wifi-sim").encoders) == sorted(encoder_names()[:7])
    assert [d.name for d in read_protocol("measured-complementary").directions] == ["E1,E2 → E3", "E1,E3 → E2"]
    assert [d.name for d in read_protocol("measured-wifi").directions] == ["E2,E3 → E1"]
    [ablation] = read_protocol("component-ablation").methods
    assert ablation.variants == PisaMethod.variants
    [calibrated] = read_protocol("calibration-ablation").methods
    assert calibrated.calibration == ("paper", "without-grouping", "without-prior")
    compared = read_protocol("external-baselines")
    rows = {row.method for row in compared.methods}
    assert {"single", "pisa", "sigmix", "rffcc", "gad", "riei", "eada", "difex", "irm", "coral", "mmd", "dann"} <= rows
    assert rows <= set(method_names())
    assert all({"paper", "safe"} <= set(row.calibration) for row in compared.methods)


def refused(folder: Path, message: str, **changes: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_protocol(quick(folder, changes={**QUICK, **changes}))


def test_unknown_names_are_refused_with_the_nearest(tmp_path: Path) -> None:
    row = {"method": "pysa", "settings": {}, "variants": {"full": {}}, "calibration": []}
    refused(tmp_path, "quick.yaml: encodrs: unknown setting 'encodrs'. Did you mean 'encoders'?", encodrs=["cnn"])
    refused(tmp_path, "unknown method 'pysa'. Did you mean 'pisa'?", methods=[row])
    refused(tmp_path, "unknown encoder 'resnett'. Did you mean 'resnet'?", encoders=["resnett"])
    refused(tmp_path, "unknown setting 'epoch'. Did you mean 'epochs'?", training={"epoch": 3})
    refused(tmp_path, "unknown setting 'tops'. Did you mean 'top'?", calibration={"paper": {"tops": 3}})
    misnamed = {**row, "method": "single", "settings": {"embedding": 64}, "calibration": ["papper"]}
    refused(tmp_path, "unknown calibration 'papper'. Did you mean 'paper'?", methods=[misnamed])
    with pytest.raises(ConfigError, match=r"unknown protocol 'wifi-sin'\. Did you mean 'wifi-sim'"):
        read_protocol("wifi-sin")


def test_a_misspelt_method_is_blamed_and_not_the_grid_that_has_it_right(tmp_path: Path) -> None:
    def refused_with(method: str, setting: str, message: str) -> None:
        row = {"method": method, "settings": {setting: 64}, "variants": {"full": {}}, "calibration": []}
        search = {"epochs": 1, "split_seed": 1, "seeds": [1], "grid": {"single": {"embedding": [64, 8]}}}
        with pytest.raises(ConfigError, match=r"^\S*quick\.yaml: " + re.escape(message)):
            quick(tmp_path, changes={**QUICK, "methods": [row], "search": search})

    refused_with("singel", "embedding", "singel: unknown method 'singel'. Did you mean 'single'?")
    refused_with("single", "embeding", "single: single.embeding: unknown setting 'embeding'. Did you mean 'embedding'?")


def test_settings_out_of_range_are_refused_with_their_method(tmp_path: Path) -> None:
    row = {"method": "single", "settings": {"embedding": 0}, "variants": {"full": {}}, "calibration": []}
    refused(tmp_path, "quick.yaml: single: embedding: expected at least 1, found 0", methods=[row])
    refused(tmp_path, "training.learning_rate: expected a finite number", training={"learning_rate": float("nan")})


def test_settings_that_are_not_written_are_recorded_with_their_defaults(tmp_path: Path) -> None:
    """All of a method or calibration at once: one that names some of them names all."""
    row = {"method": "single", "calibration": ["paper"]}
    short = quick(tmp_path, changes={**QUICK, "methods": [row], "calibration": {"paper": {"method": "ucapc"}}})
    check_protocol(short)
    default = build_method("single", Setup(10, "cnn", square())).describe()
    written = {**row, "settings": default, "variants": {"full": {}}}
    stage = {"method": "ucapc", **asdict(UCAPC())}
    stage.pop("workspace_mib")
    whole = quick(tmp_path, changes={**QUICK, "methods": [written], "calibration": {"paper": stage}})
    assert [run.to_json() for run in plan(short)] == [run.to_json() for run in plan(whole)]
    some = {"model": {"beta": 0.5}}
    refused(
        tmp_path,
        "quick.yaml: pisa.model.tokens: missing. Write out all",
        methods=[{"method": "pisa", "settings": some}],
    )


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        quick(tmp_path, changes={**QUICK, "encodrs": ["cnn"], "seeds": "one", "training": {"epoch": 3, "batch": "x"}})
    lines = str(found.value).splitlines()
    assert all(line.split(": ")[0].endswith("quick.yaml") for line in lines)
    for part in ("encodrs", "seeds", "training.epoch", "training.batch"):
        assert sum(f"quick.yaml: {part}: " in line for line in lines) == 1
    with pytest.raises(ConfigError) as found:
        check_protocol(quick(tmp_path, changes={**QUICK, "encoders": ["cn", "resnett"]}))
    assert ["cn'" in line or "resnett'" in line for line in str(found.value).splitlines()] == [True, True]


def test_a_new_protocol_says_all_and_runs(pisa: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    code, out, _ = pisa("bench", "new", path, "--method", "single", "--method", "closed-form", "--encoder", "cnn")
    assert (code, out) == (0, f"protocol: {path}\n")
    made = read_protocol(str(path))
    check_protocol(made)
    assert [row.method for row in made.methods] == ["single", "closed-form"]
    assert made.training == TrainingConfig()
    text = path.read_text()
    assert "settings: {embedding: 64}" in text
    code, _, error = pisa("bench", "new", path)
    assert code == 2
    assert "is there already" in error
    assert path.read_text() == text
    assert "unknown method 'pissa'" in pisa("bench", "new", tmp_path / "b.yaml", "--method", "pissa")[2]


def test_a_setting_of_the_training_left_to_its_default_is_recorded(tmp_path: Path) -> None:
    path = write_protocol(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("  batch: 16\n", ""), encoding="utf-8")
    check_protocol(short := read_protocol(str(path)))
    assert plan(short)[0].to_json()["training"]["batch"] == TrainingConfig().batch


def test_methods_across_environments_need_two_of_them(tmp_path: Path) -> None:
    one = {**QUICK, "directions": [{"source": ["E2"], "target": ["E1"]}]}
    with pytest.raises(ConfigError, match="works across source environments and needs 2 or more, found 1"):
        check_protocol(quick(tmp_path, "external-baselines", one))


def test_senseless_lists_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "seeds: expected at least one", seeds=[])
    refused(tmp_path, "quick.yaml: seeds: holds 7 more than once; expected each once", seeds=[1, 7, 2, 7])
    refused(tmp_path, "encoders: holds cnn more than once", encoders=["cnn", "cnn"])
    direction = {"source": ["E2", "E3"], "target": ["E1"]}
    refused(tmp_path, "directions: holds E2,E3 → E1 more than once", directions=[direction, direction])
    row = {"method": "single", "settings": {"embedding": 64}, "variants": {"full": {}}, "calibration": []}
    refused(tmp_path, "methods: holds single more than once", methods=[row, row])
    other = {**row, "settings": {**row["settings"], "embedding": 32}}
    refused(tmp_path, "methods: single has full more than once. Give other settings as a variant", methods=[row, other])
    refused(tmp_path, "seeds[0]: expected int, found 'one'", seeds=["one"])


def test_what_every_run_would_fail_at_is_refused_when_the_protocol_is_read(tmp_path: Path) -> None:
    def refused_on_reading(message: str, **changes: Any) -> None:
        with pytest.raises(ConfigError, match=r"quick\.yaml: .*" + re.escape(message)):
            quick(tmp_path, changes={**QUICK, **changes})

    def simulated(**changes: Any) -> dict[str, Any]:
        return {"name": "small", "simulate": {"scene": "wifi", "scale": 0.1, "seed": 1, **changes}}

    def direction(source: list[str], target: list[str]) -> list[dict[str, list[str]]]:
        return [{"source": source, "target": target}]

    refused_on_reading("unknown scene 'wfi'. Did you mean 'wifi'?", dataset=simulated(scene="wfi"))
    refused_on_reading("scale: expected a number above 0 and up to 1, found 2.0", dataset=simulated(scale=2))
    refused_on_reading("expected seeds from 0 on, found -1", dataset=simulated(seed=-1))
    refused_on_reading("environment 'E2' is both source and target", directions=direction(["E2", "E3"], ["E2"]))
    refused_on_reading("target: expected one environment or more", directions=direction(["E2"], []))
    refused_on_reading(
        "source: expected one environment or more, each once", directions=direction(["E2", "E2"], ["E1"])
    )
    for rule in ({"validation": 1.2}, {"validation": float("nan")}, {"few_shot": -4}):
        refused_on_reading("split: expected 0 < validation < 1 and few_shot ≥ 0", split=rule)
    refused_on_reading("seeds: expected seeds from 0 on, found -3", seeds=[1, -3])
    refused_on_reading("unknown precision 'flaot32'. Did you mean 'float32'?", precision="flaot32")
    search = {"epochs": 0, "split_seed": 1, "seeds": [1], "grid": {"single": {"embedding": [64]}}}
    refused_on_reading("search.epochs: expected at least 1, found 0", search=search)


def test_the_package_that_is_installed_has_the_protocols(tmp_path: Path) -> None:
    """As `pip install .` builds it: without the checkout around it."""
    build = ["egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(tmp_path / "lib")]
    subprocess.run([sys.executable, "setup.py", "-q", *build], cwd=ROOT, check=True, capture_output=True)
    inside = tmp_path / "lib" / "pisa_capc" / "protocols"
    assert sorted(path.stem for path in inside.iterdir()) == NAMES
    script = "from pisa_capc.evidence.benchmark.protocols import _find; print(_find('wifi-sim'))"
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=alone, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(inside / "wifi-sim.yaml")
