"""Tables against numbers worked out by hand."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.benchmark.protocols import Protocol, read_protocol
from pisa_capc.evidence.benchmark.render import as_csv, latex, markdown
from pisa_capc.evidence.benchmark.results import Difference, Mean, load_results, paired_difference
from pisa_capc.evidence.benchmark.tables import COLUMNS, PAIRED, Table, flat_rows, make_tables
from tests.evidence.benchmark.tools import CPU, QUICK, all_runs, made_up, quick, with_stages

THREE = {**QUICK, "seeds": [1, 2, 3]}
SINGLE, PISA, PAPER = (0.10, 0.30, 0.20), (0.40, 0.50, 0.60), (0.45, 0.60, 0.66)
# t(0.975, 2 degrees of freedom) = 4.302653; differences PISA − Single 0.3, 0.2, 0.4 have s = 0.1
T, REACH = 4.302653, 4.302653 * 0.1 / 3**0.5


@pytest.fixture
def protocol(tmp_path: Path) -> Protocol:
    protocol = with_stages(quick(tmp_path, changes=THREE), pisa=("paper",))
    for run, value in zip(all_runs(protocol, method="single"), SINGLE, strict=True):
        made_up(run, {"direct": value}, 0.8).write(tmp_path / "records")
    for run, direct, paper in zip(all_runs(protocol, method="pisa"), PISA, PAPER, strict=True):
        made_up(run, {"direct": direct, "paper": paper}, direct + 0.3).write(tmp_path / "records")
    return protocol


def test_a_paired_difference_has_the_interval_of_its_formula() -> None:
    values, reference = dict(zip([(1, 1), (1, 2), (1, 3)], PISA, strict=True)), {(1, 1): 0.1, (1, 2): 0.3, (1, 3): 0.2}
    found = paired_difference(values, reference)
    assert found == pytest.approx((0.3, 0.3 - REACH, 0.3 + REACH), abs=1e-6)
    assert paired_difference(values, {(1, 1): 0.1, (9, 9): 0.5}) is None


def test_three_stages(protocol: Protocol, tmp_path: Path) -> None:
    [table] = make_tables(protocol, load_results(protocol, tmp_path / "records"))
    [row] = table.rows
    by_name = dict(zip(table.headings, row, strict=True))
    assert (by_name["Encoder"], by_name["runs"]) == ("CNN", 3)
    for name, values in (("Single", SINGLE), ("PISA", PISA), ("PISA-CAPC", PAPER)):
        assert by_name[f"{name} F1"] == pytest.approx(Mean(mean(values), stdev(values)))
        assert by_name[f"{name} AUROC"] == pytest.approx(Mean((1 + mean(values)) / 2, stdev(values) / 2))
    assert by_name["PISA ΔSingle"] == pytest.approx(Difference(0.3, 0.3 - REACH, 0.3 + REACH), abs=1e-6)
    gains = [b - a for a, b in zip(PISA, PAPER, strict=True)]
    reach = T * stdev(gains) / 3**0.5
    assert "PISA-CAPC (safe) F1" not in by_name
    assert by_name["PISA-CAPC ΔPISA"] == pytest.approx(
        (mean(gains), mean(gains) - reach, mean(gains) + reach), abs=1e-6
    )


def test_where_trainings_collapse_the_median_stands_beside_the_mean(tmp_path: Path) -> None:
    """Which ones is told by the source validation: a run that fails on the target alone has not collapsed."""
    protocol = with_stages(quick(tmp_path, changes=THREE), pisa=("paper",))
    for run, f1, source in zip(all_runs(protocol, method="pisa"), (0.9, 0.02, 0.8), (0.9, 0.44, 0.46), strict=True):
        record = made_up(run, {"direct": f1, "paper": f1}, source)
        replace(record, repeats=(0.9, 0.3) if f1 == 0.02 else ()).write(tmp_path / "records")
    results = load_results(protocol, tmp_path / "records")
    [table] = make_tables(protocol, results)
    cell = table.rows[0][table.headings.index("PISA F1")]
    assert cell == pytest.approx(Mean(1.72 / 3, stdev((0.9, 0.02, 0.8)), 0.8, 1 / 3))
    assert "0.5733 ± 0.4818, median 0.8000, 33 % collapsed |" in markdown([table])
    assert r"$0.5733\pm0.4818$, median 0.8000, 33 \% collapsed &" in latex([table])
    assert "A training has collapsed where its source-validation Macro-F1 is below half of the best" in table.note
    assert "with other results (direct Macro-F1): pisa cnn, 1 of 3 runs (0.0200 to 0.9000)." in table.note
    row = next(csv.DictReader(io.StringIO(as_csv(flat_rows(results)))))
    assert (row["macro_f1_median"], float(row["collapsed"])) == ("0.8", pytest.approx(1 / 3))


def test_latex_marks_the_best_of_each_column() -> None:
    rows = [
        ["a", 3, Mean(0.2, 0.1), None],
        ["b", 3, Mean(0.30001, 0.1), Mean(0.5, None)],
        ["c", 3, Mean(0.3, 0.2), None],
    ]
    text = latex([Table("Some", ("Method", "runs", "F1", "AUROC"), rows)])
    assert r"a & 3 & $0.2000\pm0.1000$ & --" in text
    assert r"b & 3 & $\mathbf{0.3000}\pm0.1000$ & $0.5000$ \\" in text
    assert r"c & 3 & $\mathbf{0.3000}\pm0.2000$" in text  # equal as they are printed
    assert r"\caption{Some. " in text


def test_the_safe_stage_is_measured_against_pisa(tmp_path: Path) -> None:
    protocol = quick(tmp_path, changes=THREE)
    for run, direct, paper in zip(all_runs(protocol, method="pisa"), PISA, PAPER, strict=True):
        made_up(run, {"direct": direct, "paper": paper, "safe": direct + 0.01}).write(tmp_path / "safe")
    [table] = make_tables(protocol, load_results(protocol, tmp_path / "safe"))
    by_name = dict(zip(table.headings, table.rows[0], strict=True))
    assert by_name["PISA-CAPC (safe) ΔPISA"] == pytest.approx(Difference(0.01, 0.01, 0.01))
    assert by_name["Single F1"] is None


def test_csv_has_a_row_for_each_stage(protocol: Protocol, tmp_path: Path) -> None:
    text = as_csv(flat_rows(load_results(protocol, tmp_path / "records")))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == COLUMNS
    assert [(r["method"], r["stage"]) for r in rows] == [("single", "direct"), ("pisa", "direct"), ("pisa", "paper")]
    last = rows[-1]
    assert (last["dataset"], last["direction"], last["encoder"], last["runs"]) == ("small", "E2,E3 → E1", "cnn", "3")
    assert float(last["macro_f1_mean"]) == pytest.approx(mean(PAPER))
    assert float(last["macro_f1_std"]) == pytest.approx(stdev(PAPER))
    assert float(last["auroc_mean"]) == pytest.approx((1 + mean(PAPER)) / 2)
    assert float(last["source_f1_mean"]) == pytest.approx(mean(PISA) + 0.3)


def test_markdown_and_latex(protocol: Protocol, tmp_path: Path) -> None:
    tables = make_tables(protocol, load_results(protocol, tmp_path / "records"))
    assert "| CNN | 3 | 0.2000 ± 0.1000 | 0.6000 ± 0.0500 | 0.5000 ± 0.1000 |" in markdown(tables)
    assert "+0.3000 [+0.0516, +0.5484]" in markdown(tables)
    assert r"CNN & 3 & $0.2000\pm0.1000$" in latex(tables)  # alone in its column: nothing is best
    assert r"E2,E3 $\rightarrow$ E1" in latex(tables)


def test_words_stand_left_and_numbers_right(tmp_path: Path) -> None:
    protocol = quick(tmp_path)
    protocol = replace(protocol, methods=protocol.methods[:1])  # single alone: no comparison, so a plain list
    for run in all_runs(protocol):
        made_up(run, {"direct": 0.4}).write(tmp_path / "records")
    tables = make_tables(protocol, load_results(protocol, tmp_path / "records"))
    headings, sides = markdown(tables).splitlines()[2:4]
    assert headings.startswith("| Dataset | Direction | Method | Variant | Encoder | Stage | runs | Source val F1 |")
    assert sides == "|" + " --- |" * 6 + " ---: |" * 3
    assert r"\begin{tabular}{@{}llllllccc@{}}" in latex(tables)


def test_what_is_not_recorded_is_said(tmp_path: Path) -> None:
    directions = [{"source": ["E2", "E3"], "target": ["E1"]}, {"source": ["E1", "E3"], "target": ["E2"]}]
    protocol = quick(tmp_path, "external-baselines", {**QUICK, "directions": directions, "encoders": ["cnn", "tcn"]})
    kept = [row for row in protocol.methods if row.method in ("pisa", "single", "irm")]
    protocol = replace(protocol, methods=tuple(kept), search=None)

    def record(direction: str, *methods: str, seeds: tuple[int, ...] = (1, 2)) -> None:
        for run in all_runs(protocol, encoder="cnn", direction=direction):
            if run.method in methods and run.seed in seeds:
                made_up(run, dict.fromkeys(("direct", *run.calibration), 0.4)).write(tmp_path / "records")

    def notes() -> set[str]:
        return {table.note for table in make_tables(protocol, load_results(protocol, tmp_path / "records"))}

    record("E2,E3 → E1", "pisa")
    record("E2,E3 → E1", "single", seeds=(1,))
    missing = "Not recorded: pisa tcn; single cnn 1 of 2; single tcn; irm cnn; irm tcn"
    assert notes() == {f"{PAIRED} {missing}; E1,E3 → E2."}
    protocol = replace(protocol, encoders=("cnn",))
    record("E2,E3 → E1", "single", "irm")
    record("E1,E3 → E2", "single")
    assert notes() == {PAIRED, f"{PAIRED} Not recorded: pisa cnn; irm cnn."}
    protocol = replace(protocol, methods=protocol.methods[1:])  # without PISA there is no comparison, so one list
    [note] = notes()
    assert note.endswith("Not recorded of small, E1,E3 → E2: irm cnn.")
    record("E1,E3 → E2", "irm")
    assert not any("Not recorded" in note for note in notes())


def test_components_with_their_drops(tmp_path: Path) -> None:
    protocol = quick(tmp_path, "component-ablation", THREE)
    for variant, loss in (("full", 0.0), ("topology-only", 0.1)):
        for run, value in zip(all_runs(protocol, variant=variant), PISA, strict=True):
            made_up(run, {"direct": value - loss}).write(tmp_path / "records")
    [table] = make_tables(protocol, load_results(protocol, tmp_path / "records"))
    rows = {row[0]: row for row in table.rows}
    assert rows["full"][-2:] == [pytest.approx(Mean(0.5, 0.1)), None]
    assert rows["topology-only"][-1] == pytest.approx(Difference(0.1, 0.1, 0.1))
    assert rows["no-token-refinement"][1:] == [0, None, None, None]
    assert "| no-token-refinement | 0 | – | – | – |" in markdown([table])


def test_calibrations_against_the_published_one(tmp_path: Path) -> None:
    protocol = quick(tmp_path, "calibration-ablation", THREE)
    for run, value in zip(all_runs(protocol), PAPER, strict=True):
        stages = {"direct": value - 0.05, "paper": value, "without-grouping": value - 0.02, "without-prior": value}
        made_up(run, stages).write(tmp_path / "records")
    [table] = make_tables(protocol, load_results(protocol, tmp_path / "records"))
    deltas = {row[0]: row[-1] for row in table.rows}
    assert deltas["direct"] == pytest.approx(Difference(-0.05, -0.05, -0.05))
    assert deltas["U-CAPC"] is None
    assert deltas["without-grouping"] == pytest.approx(Difference(-0.02, -0.02, -0.02))


def test_groups_of_external_baselines(tmp_path: Path) -> None:
    stages = {"pisa": ("direct", "paper", "without-prior", "safe"), "sigmix": ("direct", "paper", "safe")}
    stages["irm"] = stages["sigmix"]
    protocol = quick(tmp_path, "external-baselines", THREE)
    for method, lower in (("pisa", 0.0), ("sigmix", 0.1), ("irm", 0.2)):
        for run, direct, paper in zip(all_runs(protocol, method=method), PISA, PAPER, strict=True):
            scores = {
                "direct": direct - lower,
                "paper": paper - 2 * lower,
                "without-prior": paper - 0.01,
                "safe": direct,
            }
            made_up(run, {stage: scores[stage] for stage in stages[method]}).write(tmp_path / "records")
    group_a, group_b, composed = make_tables(protocol, load_results(protocol, tmp_path / "records"))
    assert [row[0] for row in group_a.rows] == ["PISA", "SigMix", "IRM"]
    assert [row[-1] for row in group_a.rows[:2]] == [None, pytest.approx(Difference(-0.1, -0.1, -0.1))]
    assert group_a.rows[2][3] == pytest.approx(Mean(mean(PISA) - 0.2, stdev(PISA)))
    names = ["PISA-CAPC", "PISA-CAPC (without-prior)", "SigMix + U-CAPC", "IRM + U-CAPC"]
    assert [row[0] for row in group_b.rows] == names
    assert group_b.rows[1][-1] == pytest.approx(Difference(-0.01, -0.01, -0.01))
    assert group_b.rows[2][-1] == pytest.approx(Difference(-0.2, -0.2, -0.2))
    change = [b - a - 0.1 for a, b in zip(PISA, PAPER, strict=True)]
    reach = T * stdev(change) / 3**0.5
    assert group_b.rows[2][-2] == pytest.approx((mean(change), mean(change) - reach, mean(change) + reach), abs=1e-6)
    assert composed.headings[3:] == ("U-CAPC F1", "U-CAPC Δdirect", "U-CAPC, safe F1", "U-CAPC, safe Δdirect")
    assert composed.rows[1][2] == pytest.approx(Mean(mean(PISA) - 0.1, stdev(PISA)))
    assert composed.rows[1][-1] == pytest.approx(Difference(0.1, 0.1, 0.1))
    assert composed.rows[2][-1] == pytest.approx(Difference(0.2, 0.2, 0.2))
    assert "Group A, direct inference" in markdown([group_a])
    assert "SigMix + U-CAPC & 3" in latex([group_b])
    rows = flat_rows(load_results(protocol, tmp_path / "records"))
    assert {(row["method"], row["stage"]) for row in rows} == {(m, s) for m in stages for s in stages[m]}


def test_a_stage_is_counted_by_the_runs_that_have_it(protocol: Protocol, tmp_path: Path) -> None:
    results = load_results(protocol, tmp_path / "records")
    first, *_ = results.runs[next(key for key in results.runs if key.method == "pisa")].values()
    del first.stages["paper"]
    counts = {(row["method"], row["stage"]): row["runs"] for row in flat_rows(results)}
    assert counts == {("single", "direct"): 3, ("pisa", "direct"): 3, ("pisa", "paper"): 2}


def test_datasets_and_devices_are_not_mixed(protocol: Protocol, tmp_path: Path) -> None:
    run = all_runs(protocol, method="single")[0]
    made_up(run, {"direct": 0.9}, where=replace(CPU, dataset="fedcba9876543210")).write(tmp_path / "records")
    made_up(run, {"direct": 0.7}, where=replace(CPU, device="cuda")).write(tmp_path / "records")
    rows = [row for row in flat_rows(load_results(protocol, tmp_path / "records")) if row["method"] == "single"]
    found = {row["dataset"]: (row["macro_f1_mean"], row["runs"]) for row in rows}
    assert found == {
        "small 012345 (cpu, float32)": (pytest.approx(0.2), 3),
        "small 012345 (cuda, float32)": (0.7, 1),
        "small fedcba (cpu, float32)": (0.9, 1),
    }


def test_no_records_say_how_to_make_them(tmp_path: Path) -> None:
    def said(protocol: Protocol, folder: Path) -> str:
        with pytest.raises(DataError) as error:
            load_results(protocol, folder)
        return str(error.value)

    file = tmp_path / "quick.yaml"
    make = f"no records of quick. Make them: pisa bench run {file} --data FOLDER"
    assert said(quick(tmp_path), Path("results/records/quick")).endswith(make)
    assert said(quick(tmp_path), tmp_path / "quick").endswith(f"{make} --results {tmp_path}")
    assert said(read_protocol("wifi-sim"), tmp_path / "wifi-sim").endswith(
        f"Make them: pisa bench run wifi-sim --results {tmp_path}"
    )
