"""The page on growth: its words follow the record, and there is none before there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import grown, growth
from pages import results as results_page
from pages.grown import AHEAD, memory, recorded, seconds, together
from pages.growth import draw, verdict, written
from studies.growth import SIZES, STAGES, exponents

from pisa_capc.data.protocol import CAREFUL, DIRECT, PAPER

ROOT = Path(__file__).parents[1]
EPOCHS = 20


def made_up(power: float = 1.0, falls: float = 0.0, on_gpu: float = 1.0) -> dict[str, Any]:
    """Every amount is in proportion to devices but for U-CAPC: its time grows by `power`, its memory by `on_gpu`.

    A tenfold of devices costs `falls` of the score.
    """
    sizes = []
    for i, devices in enumerate(SIZES):
        score = 0.9 - falls * i / 2
        stages = {name: {"seconds": 0.01 * devices, "gpu_mib": 2.0 * devices} for name in STAGES}
        stages["simulate"]["gpu_mib"] = 0.0
        stages[PAPER] = {"seconds": 1e-4 * devices**power, "gpu_mib": 1.0 * devices**on_gpu}
        del stages["prepare"]["gpu_mib"]
        sizes.append(
            {
                "devices": devices,
                "epochs": EPOCHS,
                "frames": {"all": 900 * devices, "train": 500 * devices, "target": 250 * devices},
                "statistics_mib": 0.02 * devices,
                "parameters": 85_877 + 65 * devices,
                "macro_f1": {"validation": 0.95, DIRECT: score, PAPER: score + 0.05, CAREFUL: score - 0.01},
                "stages": stages,
                "mib": 4.0 * devices,
            }
        )
    plan = {"method": "pisa-equalised", "encoder": "transformer", "epochs": EPOCHS, "fewest_steps": 8000}
    where = {"cores": 16, "torch": "2.11.0", "gpu": "NVIDIA H200"}
    return {
        "machine": where,
        "plan": {**plan, "scale": 0.125, "device": "cuda"},
        "sizes": sizes,
        "exponents": exponents(sizes),
    }


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (made_up(power=2.0, falls=0.3), "**The scores break first**: at 1,000 devices direct Macro-F1 is 0.300"),
        (made_up(power=2.0), "**The time of U-CAPC breaks first**: it grows as devices to the power of 2.00"),
        (
            made_up(on_gpu=1.5),
            "**The GPU memory of U-CAPC breaks first**: carried on by its exponents below",
        ),
        (made_up(on_gpu=1.5), "fills the NVIDIA H200 at about 2,700 devices"),  # 139 GiB to the power of 2/3
        (made_up(), "**Nothing breaks up to 1,000 devices**"),
    ],
)
def test_what_breaks_first_is_read_from_the_record(record: dict[str, Any], words: str) -> None:
    assert words in " ".join(verdict(record).split())


def test_amounts_are_carried_on_by_their_exponent() -> None:
    record = made_up(power=2.0)
    assert seconds(record)[PAPER].at(AHEAD) == pytest.approx(1e-4 * AHEAD**2)
    assert seconds(record)["epoch"].at(AHEAD) == pytest.approx(0.01 * AHEAD)
    assert memory(record)["process"].at(AHEAD) == pytest.approx(4.0 * AHEAD)
    assert "simulate" not in memory(record)  # it has nothing on the GPU


def test_a_size_takes_all_its_epochs_and_everything_else_once() -> None:
    last = made_up()["sizes"][-1]
    others = [own["seconds"] for name, own in last["stages"].items() if name != "epoch"]
    assert together(last) == pytest.approx(sum(others) + EPOCHS * last["stages"]["epoch"]["seconds"])


def test_the_page_says_where_a_calibration_adds_and_where_it_costs() -> None:
    page = written(made_up())
    assert "- U-CAPC adds 0.050 at 10, 0.050 at 30" in page
    assert "- careful costs 0.010 at 10, 0.010 at 30" in page
    assert "| 1,000 | 0.001 | 0.950 | 0.900 | 0.950 | 0.890 | 900× |" in page


def test_the_page_says_which_sizes_are_missing() -> None:
    record = made_up()
    assert "Not measured yet" not in written(record)
    record["sizes"] = record["sizes"][:-1]
    assert "**Not measured yet: 1,000 devices.**" in " ".join(written(record).split())


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    draw(made_up(), tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_there_is_no_page_before_there_is_a_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(grown, "RECORD", "studies/growth-nowhere.json")
    assert recorded() is None
    growth.picture(tmp_path)
    assert list(tmp_path.iterdir()) == []
    texts = results_page.texts()
    assert "growth.md" not in texts
    assert "growth.md" not in texts["findings.md"]
    assert "speed.md" in texts["findings.md"]


@pytest.mark.skipif(not (ROOT / "results" / grown.RECORD).is_file(), reason="growth is not measured yet")
def test_the_exponents_of_the_page_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    record = recorded()
    assert record is not None
    assert {size["devices"] for size in record["sizes"]} <= set(SIZES)
    for name, one in seconds(record).items():
        assert one.exponent == pytest.approx(record["exponents"][name]["seconds"])
    for name in memory(record).keys() & record["exponents"].keys():
        assert memory(record)[name].exponent == pytest.approx(record["exponents"][name]["gpu_mib"])
    assert (ROOT / "docs" / growth.PICTURE).is_file()
