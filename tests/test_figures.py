"""The figures in README and docs are those of the committed records."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pages import blocks, study
from pages import results as results_page
from pages.against_paper import section
from pages.sides import Row, published
from pages.verdicts import NEAR_CHANCE

from pisa_capc.core import revisions
from pisa_capc.evidence.benchmark.plan import plan
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.results import Key, deployed, load_results, paired_difference
from tests.evidence.benchmark.tools import all_runs, made_up

ROOT = Path(__file__).parents[1]


def record(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def test_parts_of_pages_are_made_from_the_records(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    for page in blocks.BLOCKS:
        assert blocks.filled(page) == (ROOT / page).read_text(encoding="utf-8")


def test_the_page_on_the_method_quotes_the_record_of_streamed_training() -> None:
    streamed = {
        row["what"]: row["ms a batch"] for row in record("speed/load-2core.json")["rows"] if "ms a batch" in row
    }
    nine, one, disk = (streamed[f"streamed, {of}"] for of in ("9 runs", "1 run", "9 runs, from the disk"))
    method = " ".join((ROOT / "docs/method.md").read_text(encoding="utf-8").split())
    for amount in (nine, one, disk):
        assert f"{amount:.1f} ms" in method


def test_the_effect_of_epsilon_is_that_of_its_record() -> None:
    direct, *rows = record("studies/epsilon.json")["rows"]
    page = (ROOT / "docs/method.md").read_text(encoding="utf-8")
    assert "| ε | " + " | ".join(row["epsilon"] for row in rows) + " |" in page
    assert "| Macro-F1 | " + " | ".join(f"{row['macro_f1']:.3f}" for row in rows) + " |" in page
    scores = [row["macro_f1"] for row in rows]
    words = " ".join(page.split())
    assert f"{direct['macro_f1']:.3f} without" in words
    assert f"within {max(scores) - min(scores):.3f}" in words
    assert min(scores) > direct["macro_f1"]


def test_the_results_pages_are_made_from_the_records(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/results").glob("*.md")}
    assert results_page.texts() == written


@pytest.mark.slow
def test_their_pictures_are_drawn(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    results_page.pictures(tmp_path)
    for picture in tmp_path.iterdir():
        assert (ROOT / "docs" / picture.name).is_file()


def test_what_the_summary_says_in_words_is_so(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    stages = {}
    for name in ("wifi-sim", "lora-sim", "wifi-place", "lora-place"):
        results = load_results(read_protocol(name), Path("results/records") / name)
        for key, runs in results.runs.items():
            for stage in next(iter(runs.values())).stages:
                stages[name, key.encoder, key.method, stage] = statistics.mean(results.f1(key, stage).values())
        for key in (key for key in results.runs if key.method == "pisa"):
            single, direct, after = (
                results.f1(key._replace(method=method), stage)
                for method, stage in (("single", "direct"), ("pisa", "direct"), ("pisa", "paper"))
            )
            undecided = (name, key.encoder) == ("lora-place", "transformer")
            assert (paired_difference(direct, single).low > 0) != undecided
            assert paired_difference(after, direct).low > 0
        for encoder in read_protocol(name).encoders:
            single, pisa, capc = (
                stages[name, encoder, *kind] for kind in (("single", "direct"), ("pisa", "direct"), ("pisa", "paper"))
            )
            assert single < pisa < capc
            assert single < 0.12 or name.endswith("-place")
    results = load_results(read_protocol("component-ablation"), Path("results/records/component-ablation"))
    for dataset, better, worse in (
        ("wifi-sim", {"no-cfo-dynamics"}, {"contextual-only"}),
        ("lora-sim", {"no-cfo-dynamics", "topology-only"}, {"contextual-only", "no-topology-consistency"}),
        ("wifi", set(), {"contextual-only"}),
        ("lora", set(), {"contextual-only"}),
    ):
        whole = Key(dataset, "E2,E3 → E1", "pisa", "full", "transformer")
        scores = {key.variant: results.f1(key, "direct") for key in results.runs if key.dataset == dataset}
        change = {variant: paired_difference(own, results.f1(whole, "direct")) for variant, own in scores.items()}
        assert {v for v, found in change.items() if found.low > 0} == better
        assert {v for v, found in change.items() if found.high < 0} == worse
        assert statistics.mean(scores["contextual-only"].values()) < 0.1
        assert min(change, key=lambda variant: change[variant].mean) == "contextual-only"
    methods, after = (results_page._means("external-baselines", stage) for stage in ("direct", "paper"))
    for dataset in results_page.PLACES:
        own = {name: f1 for (place, name), f1 in methods.items() if place == dataset}
        assert own["eada"] == pytest.approx(own["equalised"], abs=0.005)
        assert max(own, key=own.__getitem__) == "pisa-equalised"
        calibrated = {name: f1 for (place, name), f1 in after.items() if place == dataset}
        assert own["pisa-equalised"] < calibrated["pisa-equalised"] == max(calibrated.values())
        assert all(f1 < 0.15 for name, f1 in own.items() if name not in ("pisa", *results_page.EQUALISED))
    for row in record("studies/replicate-unlearnt-2core.json")["rows"]:
        assert max(row["recorded validation F1"], row["validation F1"]) < NEAR_CHANCE
    for models in study.studied().values():
        cells = {deployment.name: deployment for deployment in models.deployments}
        assert all(models.worst(cell, "safe")[0] > -0.001 for cell in study.rehearsed(models))
        ucapc, *peers = (models.mean(cells["balanced"], name) for name in results_page.BALANCED)
        assert all(peer > ucapc for peer in peers)
        assert all(models.worst(cells["dirichlet-0.3"], name)[0] < -0.1 for name in ("paper", "pt-map"))


def test_the_page_lists_the_calibrations_that_are_recorded(monkeypatch) -> None:
    """And not those of the registry: one that is added there changes nothing of the page."""
    monkeypatch.chdir(ROOT)
    for models in study.studied().values():
        recorded = {stage for record in models.records["cnn"] for stage in record.stages if "@" not in stage}
        assert set(models.stages) == recorded
        assert models.stages[:3] == ("direct", "paper", "safe")


def test_aims_are_differences_of_means(tmp_path: Path) -> None:
    protocol = read_protocol("calibration-study")
    for i, run in enumerate(all_runs(protocol)):
        if run.encoder in ("cnn", "tcn") and run.split_seed == 2026:
            scores = {stage: {"paper": 0.6, "safe": 0.58}.get(stage.split("@")[0], 0.5) for stage in run.stages}
            scores |= {"paper@frozen": 0.59, "safe@frozen": 0.57}
            if run.encoder == "cnn":
                scores |= {"paper@missing": 0.1, "safe@missing": 0.5 + (-0.02, 0.01, -0.005)[i % 3]}
            made_up(run, scores).write(tmp_path)
    results = load_results(protocol, tmp_path)
    [models] = deployed(protocol, results, results.places()[0])
    found = study.aims(models)
    assert models.runs == 6
    assert found["worst safe - direct"] == [-0.005, "cnn", "missing"]
    assert found["worst paper - direct"] == [-0.4, "cnn", "missing"]
    assert found["balanced gain kept by safe"] == 0.8
    assert found["worst - direct, not rehearsed"] == {
        "safe": [0.08, "cnn", "one-device"],
        "paper": [0.1, "cnn", "one-device"],
    }
    assert found["gain kept frozen"] == {"paper": 0.9, "safe": 0.875}
    assert found["gain kept without identifiers"] == {"paper": 1.0, "safe": 1.0}
    assert found["mean over cells"]["lame"] == 0.5


def test_the_papers_tables_are_whole_and_as_printed() -> None:
    tables = published()
    counts = {name: len(table.numbers) for name, table in tables.items()}
    assert counts == {
        "wifi-sim": 21,
        "lora-sim": 21,
        "measured-wifi": 6,
        "measured-complementary": 42,
        "external-baselines": 10,
        "component-ablation": 7,
        "calibration-ablation": 4,
    }
    main = "E2,E3 → E1"
    printed = {
        ("wifi-sim", Row(main, "pisa", "full", "transformer", "direct")): "0.4234 ± 0.1186",
        ("lora-sim", Row(main, "pisa", "full", "cldnn", "paper")): "0.7805 ± 0.0696",
        ("measured-wifi", Row(main, "single", "full", "mscnn", "direct")): "0.7038",
        ("measured-complementary", Row("E1,E3 → E2", "pisa", "full", "mscnn", "paper")): "0.7976 ± 0.0116",
        ("external-baselines", Row(main, "sigmix", "full", "transformer", "direct")): "0.8691 ± 0.0077",
        ("component-ablation", Row(main, "pisa", "no-cfo-dynamics", "transformer", "direct")): "0.8092 ± 0.0257",
        ("calibration-ablation", Row(main, "pisa", "full", "transformer", "without-grouping")): "0.8993 ± 0.0119",
    }
    assert {where: tables[where[0]].numbers[where[1]]["f1"] for where in printed} == printed


@pytest.mark.parametrize("name", list(published()))
def test_a_protocol_repeats_every_row_of_its_table(name: str) -> None:
    planned = {Row(*run.cell, stage) for run in plan(read_protocol(name)) for stage in ("direct", *run.calibration)}
    elsewhere = {row for row in published()[name].numbers if name == "external-baselines" and row.encoder == "mscnn"}
    assert set(published()[name].numbers) - planned == elsewhere  # that one is in the tables of all encoders


def write(folder: Path, name: str, scores: dict[tuple[str, str], dict[str, float]], encoder: str) -> str:
    """The page's section for records of these scores by method and variant, each run a little apart from the next."""
    protocol = read_protocol(name)
    for (method, variant), stages in scores.items():
        for i, run in enumerate(all_runs(protocol, method=method, variant=variant, encoder=encoder)):
            made_up(run, {stage: f1 + 0.001 * i for stage, f1 in stages.items()}).write(folder / name)
    return section(name, folder)


def test_stages_in_the_papers_order_and_in_another(tmp_path: Path) -> None:
    single, pisa = ("single", "full"), ("pisa", "full")
    write(tmp_path, "wifi-sim", {single: {"direct": 0.2}, pisa: {"direct": 0.4, "paper": 0.5, "safe": 0.45}}, "cnn")
    scores = {single: {"direct": 0.3}, pisa: {"direct": 0.2, "paper": 0.1, "safe": 0.2}}
    text = write(tmp_path, "wifi-sim", scores, "tcn")
    assert (
        "| CNN: PISA-CAPC | 9 | 0.9000 ± 0.0000 | 0.5040 ± 0.0027 | 0.7520 ± 0.0014 | +0.1000 [+0.1000, +0.1000]"
        in text
    )
    assert "| 0.4362 ± 0.0211 | 0.8941 ± 0.0091 | +0.0706 |" in text
    assert "- CNN: Single < PISA < PISA-CAPC, as in the paper." in text
    assert "- TCN: PISA-CAPC < PISA < Single, where the paper has Single < PISA < PISA-CAPC." in text
    assert "the paper's sign in 2 of 4 rows; the opposite one for TCN: PISA, TCN: PISA-CAPC." in text
    assert "U-CAPC as published is ahead of direct inference in 9 of 18 runs" in text
    assert "its mean is behind for TCN: PISA-CAPC" in text
    assert "**Incomplete:** 90 of 126 runs" in text
    assert "U-CAPC under the guard is ahead of direct inference in 9 of 18 runs, the same in 9." in text


def test_a_change_within_its_interval_is_not_called_a_sign(tmp_path: Path) -> None:
    protocol = read_protocol("calibration-ablation")
    for i, run in enumerate(all_runs(protocol)):
        stages = {"direct": 0.5, "paper": 0.6, "without-grouping": 0.5005, "without-prior": 0.5 + (-1) ** i * 0.01}
        made_up(run, stages).write(tmp_path / protocol.name)
    text = section(protocol.name, tmp_path)
    assert "sign in 2 of 3 rows; the interval holds zero for Transformer: PISA-CAPC (without-prior)." in text
    order = "PISA-CAPC, PISA-CAPC (without-prior), PISA-CAPC (without-grouping), PISA"
    assert f"Stages, best first: {order}. The paper's order is the same" in text


def test_the_most_costly_component_comes_first(tmp_path: Path) -> None:
    costs = {"full": 0.0, "contextual-only": 0.3, "topology-only": 0.1, "no-cfo-dynamics": -0.05}
    scores = {("pisa", variant): {"direct": 0.6 - cost} for variant, cost in costs.items()}
    text = write(tmp_path, "component-ablation", scores, "transformer")
    assert "most costly removal first: contextual-only, topology-only. The paper's order of these is the same" in text
    assert "Better than the whole model: no-cfo-dynamics (+0.050)." in text
    assert "Not decided" not in text
    assert "know less already" not in text
    assert "sign in 2 of 3 rows; the opposite one for Transformer: PISA no-cfo-dynamics." in text


def test_external_baselines_by_group(tmp_path: Path) -> None:
    scores = {
        ("pisa", "full"): {"direct": 0.5, "paper": 0.6, "safe": 0.55, "without-prior": 0.5},
        ("sigmix", "full"): {"direct": 0.6, "paper": 0.55, "safe": 0.6},
        ("gad", "full"): {"direct": 0.4, "paper": 0.45, "safe": 0.4},
    }
    text = write(tmp_path, "external-baselines", scores, "transformer")
    assert "best first: SigMix, PISA, GAD. The paper's order is another: PISA, SigMix, GAD." in text
    assert "Against PISA by direct inference (decided where the interval leaves out zero): behind GAD" in text
    assert (
        "Against PISA-CAPC, all after U-CAPC (decided where the interval leaves out zero): behind SigMix, GAD" in text
    )
    assert "after U-CAPC | after U-CAPC, without-prior | after U-CAPC, safe |" in text
    assert (
        "| Transformer: SigMix | 9 | 0.9000 ± 0.0000 | 0.6040 ± 0.0027 (+0.1000) | 0.5540 ± 0.0027 (-0.0500) |" in text
    )
    assert "under the guard is ahead of direct inference in 9 of 27 runs, the same in 18." in text
    assert "no search is recorded" in text
    point = {"settings": {"weight": 0.1}, "macro_f1": {"E2": 0.25, "E3": 0.35}, "mean": 0.3}
    found = {"epochs": 10, "domains": "captures", "methods": {"gad": {"chosen": point["settings"], "points": [point]}}}
    (tmp_path / "external-baselines-search.json").write_text(json.dumps(found))
    text = section("external-baselines", tmp_path)
    assert "| GAD | 1 | weight 0.1 | E2 0.2500, E3 0.3500 |" in text
    assert "end of their grid" not in text  # of one point
    found["methods"]["gad"]["points"] += [{**point, "settings": {"weight": w}, "mean": 0.02} for w in (1.0, 10.0)]
    found["methods"]["gad"]["chosen"] = {"weight": 0.01}
    (tmp_path / "external-baselines-search.json").write_text(json.dumps(found))
    edge = "At an end of their grid, so that a better value may lie beyond: GAD. All other points of GAD score as one"
    assert edge in section("external-baselines", tmp_path)
    assert "No search is recorded for SigMix, RFFCC, EADA, DIFEX, IRM, CORAL, MMD, DANN:" in text


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    said = "**Not run yet:** no records. `pisa bench run measured-wifi --data FOLDER` makes them.\n"
    assert section("measured-wifi", tmp_path).endswith(said)
    for run in all_runs(read_protocol("measured-wifi"), encoder="cnn", method="single")[:2]:
        shorter = replace(run, training=replace(run.training, epochs=3))
        made_up(shorter, {"direct": 0.5}).write(tmp_path / "measured-wifi")
    left_out = "2 records are of other settings or code and are left out.\n"
    assert section("measured-wifi", tmp_path).endswith(said + left_out)


def test_results_of_earlier_code_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "wifi-sim", {("single", "full"): {"direct": 0.2}}, "cnn")
    monkeypatch.setitem(revisions.METHODS, "single", 2)
    named = "Of earlier code, until `pisa bench run` makes them again: single cnn (code.method is 1, now 2)."
    assert f"**{named}** See the [erratum](erratum.md)." in section("wifi-sim", tmp_path)
