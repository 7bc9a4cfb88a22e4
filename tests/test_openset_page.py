"""What the page about unknown devices and that about strangers say is what the committed records have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pisa_capc.decide.calibration import UCAPC, OpenSet, SourceStatistics, usual
from pisa_capc.decide.calibration.openset import DEFAULT, unknown_scores
from pisa_capc.decide.calibration.openset.crowd import CrowdDistance
from pisa_capc.decide.calibration.openset.names import MEASURED
from pisa_capc.decide.calibration.openset.session import SessionDistance
from pisa_capc.decide.calibration.policy import AUTO
from pisa_capc.decide.identification import Choices
from pisa_capc.live.listen.recognise import LiveChoices

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/openset.md").read_text(encoding="utf-8")
CALIBRATED, STRANGERS, BY_PARTS, PROXIES, *EXPOSED = (
    json.loads((ROOT / f"results/studies/{name}.json").read_text(encoding="utf-8"))
    for name in (
        "openset-2core",
        "strangers",
        "strangers-parts",
        "strangers-proxies",
        "strangers-exposure-wifi",
        "strangers-exposure-lora",
    )
)
PARTS = BY_PARTS["models"]
WAVEFORMS = STRANGERS["waveforms"].values()


def test_the_page_quotes_the_record() -> None:
    assert f"by `{CALIBRATED['chosen']}`" in PAGE
    for plain, after in zip(CALIBRATED["mixed"][::2], CALIBRATED["mixed"][1::2], strict=True):
        rejected = "–" if after["unknown rejected"] is None else f"{100 * after['unknown rejected']:.1f} %"
        right = f"{plain['known right']:.3f} | {after['known right']:.3f} ({after['accepted known right']:.3f})"
        assert f"| {100 * plain['unknown share']:.0f} % | {right} | {rejected} |" in PAGE


def test_the_default_score_is_the_one_chosen_on_the_source() -> None:
    def area(part: str, name: str) -> float:
        return float(np.mean([own[part][name][kind]["auroc"] for own in WAVEFORMS for kind in ("frame", "sender")]))

    networks = {name: score for name, score in unknown_scores().items() if name != MEASURED}  # without error bars
    alone = [name for name, score in networks.items() if not score.needs_captures]
    fingerprint = [name for name in alone if not unknown_scores()[name].needs_carrier]
    assert max(fingerprint, key=lambda name: area("selection", name)) == STRANGERS["chosen"] == DEFAULT
    assert max(alone, key=lambda name: area("selection", name)) == "carrier"  # which has to be asked for
    assert OpenSet(UCAPC()).score == usual(SourceStatistics(session_mean=np.eye(3))).rejection == DEFAULT
    assert Choices().reject == LiveChoices().reject == AUTO
    moved = next(iter(WAVEFORMS))["moved"]
    assert float(max(moved, key=lambda value: area("moved", value))) == SessionDistance().moved
    assert f"λ = {SessionDistance().moved:g}" in PAGE


def test_the_threshold_held_in_the_new_place_and_that_of_one_place_did_not() -> None:
    for own in WAVEFORMS:
        chosen = own["target"][DEFAULT]
        assert all(chosen[kind]["thresholds"]["0.05"]["known rejected"] <= 0.05 for kind in ("frame", "sender"))
        assert own["one place"]["sender"]["known rejected"] > 0.05


def test_the_carrier_pays_where_the_source_shows_how_crystals_move_and_only_there() -> None:
    for own in WAVEFORMS:
        frame, with_carrier = own["target"][DEFAULT]["frame"], own["target"]["carrier"]["frame"]
        assert with_carrier["false accepts at 0.05"] < frame["false accepts at 0.05"] / 2
        shown, hidden = own["wander"]["everywhere"], own["wander"]["only in the new place"]
        assert shown["0"] == hidden["0"]
        assert all(found["auroc"] > frame["auroc"] - 0.001 for found in shown.values())
        rejected = [found["known rejected"] for found in hidden.values()]
        assert rejected == sorted(rejected)
        assert rejected[-1] > 0.4


def test_crowds_pay_in_both_places_and_cost_where_strangers_send_little() -> None:
    for own in WAVEFORMS:
        for part in ("quiet on the source", "quiet"):
            alone, crowd = own[part]["session"], own[part]["crowd"]
            assert crowd["all send much"]["auroc"] > alone["all send much"]["auroc"] + 0.01
            assert crowd["all little"]["auroc"] > alone["all little"]["auroc"]
            assert crowd["strangers little"]["auroc"] < alone["strangers little"]["auroc"]
            assert crowd["all send much"]["known rejected"] > alone["all send much"]["known rejected"]
        assert own["selection"]["crowd"] == own["near"][f"{CrowdDistance.near:g}"]
    assert f"ν = {CrowdDistance.near:g}" in PAGE
    assert f"√min(m, {CrowdDistance.most})" in PAGE


def test_the_identity_path_knows_more_of_strangers_than_the_embedding_and_antennas_less() -> None:
    for own in PARTS.values():
        for place in ("source", "target"):
            frame = {view: found["frame"]["auroc"] for view, found in own[place].items()}
            assert frame["identity path"] > frame["embedding"] > frame["antennas side by side"]
            agreed = frame["embedding and antennas that name another"]
            assert (agreed > frame["embedding"]) == (place == "source")


def test_a_rule_fitted_to_proxies_gains_on_the_source_and_not_in_the_new_place() -> None:
    for own in WAVEFORMS:
        assert own["rule"]["source"]["auroc"] > own["selection"][DEFAULT]["frame"]["auroc"] + 0.005
        assert own["rule"]["target"]["auroc"] < own["target"][DEFAULT]["frame"]["auroc"] + 0.001


def test_proxies_that_are_trained_on_help_and_cost_the_enrolled_nothing() -> None:
    for own in PROXIES["waveforms"].values():
        without, out, kept = (own["target"][0]["scores"][name] for name in ("never trained on", "taken out", "kept"))
        for found in (out, kept):
            for score in ("session", "crowd"):
                before, after = without[score]["frame"], found[score]["frame"]
                assert after["auroc"] > before["auroc"]
                assert after["false accepts at 0.05"] < 0.9 * before["false accepts at 0.05"]
                assert after["accuracy"] >= before["accuracy"]
                assert after["thresholds"]["0.05"]["known rejected"] <= 0.05
            frame = found["session"]["frame"]
            assert frame["auroc"] >= 0.95
            assert frame["false accepts at 0.05"] <= 0.2
        heard = own["source"]["heard"]
        assert abs(heard["with"]["frame"]["auroc"] - heard["without"]["frame"]["auroc"]) < 0.002


def test_the_page_says_how_many_strangers_fewer_pass_with_proxies() -> None:
    fewer = []
    for own in PROXIES["waveforms"].values():
        found = own["target"][0]["scores"]
        for score in ("session", "crowd"):
            before, after = (
                found[name][score]["frame"]["false accepts at 0.05"] for name in ("never trained on", "taken out")
            )
            fewer.append(1 - after / before)
    assert f"{100 * min(fewer):.0f} to {100 * max(fewer):.0f} % fewer" in PAGE


def test_sessions_of_proxies_gain_on_the_source_and_in_the_new_place_on_wifi() -> None:
    for name, own in PROXIES["waveforms"].items():
        kept, out = (own["source"][part]["as it is, all"]["frame"]["auroc"] for part in ("with", "without"))
        assert kept > out + 0.003
        kept, out = (own["target"][0]["scores"][part] for part in ("kept", "taken out"))
        gains = {score: kept[score]["frame"]["auroc"] - out[score]["frame"]["auroc"] for score in ("session", "crowd")}
        assert gains["session"] > 0
        assert (gains["session"] > 0.001) == (gains["crowd"] > 0) == (name == "wifi")


def test_a_cohort_gains_on_the_source_and_harms_in_the_new_place() -> None:
    best = PROXIES["chosen"]
    for name, own in PROXIES["waveforms"].items():
        areas = {score: found["frame"]["auroc"] for score, found in own["source"]["with"].items()}
        plain = areas["as it is, all"]
        assert areas[best] > plain
        against = ("refused by proxies", "less a quarter of the nearest proxy", "none of them probable")
        assert max(areas[score] for score in areas if "norm" in score or score in against) < plain
        cohorts = [areas[best.replace("all", cohort)] for cohort in ("proxies", "enrolled")]
        assert abs(cohorts[0] - cohorts[1]) < 0.002
        assert (
            own["source"]["without"][best]["frame"]["auroc"]
            > own["source"]["without"]["as it is, all"]["frame"]["auroc"]
        )
        scores = own["target"][0]["scores"]["never trained on"]
        assert scores["session, cohort"]["frame"]["auroc"] < scores["session"]["frame"]["auroc"]
        if name == "wifi":
            assert scores["crowd, cohort"]["frame"]["auroc"] < scores["crowd"]["frame"]["auroc"] - 0.02


def test_a_small_training_shows_nothing_for_outlier_exposure_on_both_waveforms_and_something_for_one_class() -> None:
    for own in EXPOSED:
        areas = {
            name: [found[part]["frame"]["auroc"] for part in ("taken out", "kept")]
            for name, found in own["proxies"].items()
        }
        wifi = own["waveform"] == "wifi"
        less, more = ("not trained on", "classes") if wifi else ("classes", "not trained on")
        for part in range(2):
            assert areas[less][part] < areas["uniform"][part] < areas[more][part]
            assert areas["one class"][part] > areas["not trained on"][part]


def test_what_the_page_about_strangers_says_in_words_is_so() -> None:
    for own in WAVEFORMS:
        seen, unseen = own["captures"][:2], own["captures"][2:]
        assert all(found["auroc"] >= 0.95 and found["false accepts at 0.05"] <= 0.2 for found in seen)
        assert all(found["auroc"] < 0.95 and found["false accepts at 0.05"] > 0.2 for found in unseen)
        areas = [found["auroc"] for found in own["pooled"].values()]
        assert areas == sorted(areas)
