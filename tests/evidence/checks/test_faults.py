"""Each kind of fault, planted in a set that has none, is found and named; nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import SUBCARRIERS, UNLABELLED
from pisa_capc.evidence.checks import CHECKS, Checked, Finding, Verdict, check_frames, register_check
from pisa_capc.evidence.checks.base import Evidence
from tests.evidence.checks.sets import Plain, small_scene

BAD = ("E2", "D03", "L3")
NAME = "/".join(BAD)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    frames = small_scene("wifi", tmp_path_factory.mktemp("healthy"), devices=4)
    return frames.where(environment=["E1", "E2"], capture=["L1", "L3"])


def clip(plain: Plain, bad: np.ndarray) -> None:
    parts = plain.iq[bad].view(np.float32)
    limit = np.float32(1.2) * np.sqrt(np.mean(parts**2, axis=-1, keepdims=True))
    plain.iq[bad] = np.clip(parts, -limit, limit).view(np.complex64)


def quieten(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad, 1] *= 1e-3


def deafen(plain: Plain, bad: np.ndarray) -> None:
    noise = np.random.default_rng(0).normal(size=(*plain.iq[bad, 1].shape, 2)) @ [1, 1j]
    plain.iq[bad, 1] = noise / np.sqrt(2)


def copy_antenna(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad, 3] = (0.3 - 0.8j) * plain.iq[bad, 0]


def copy_exactly(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad] = plain.iq[plain.where("E1", "D01", "L1")]


def copy_scaled_and_turned(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad] = (-2.0 + 1.5j) * plain.iq[plain.where("E1", "D01", "L1")]


def repeat(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad[10:13]] = plain.iq[bad[:3]]


def add_dc(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad, 2] += 0.1 - 0.05j


def add_much_dc(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad, 2] += 0.5


def add_noise(plain: Plain, bad: np.ndarray) -> None:
    noise = np.random.default_rng(0).normal(size=(*plain.iq[bad].shape, 2)) @ [1, 1j]
    plain.iq[bad] += 0.35 * noise  # about 6 dB


def drown(plain: Plain, bad: np.ndarray) -> None:
    noise = np.random.default_rng(0).normal(size=(*plain.iq[bad].shape, 2)) @ [1, 1j]
    plain.iq[bad] += noise


def warm_up(plain: Plain, bad: np.ndarray) -> None:
    assert plain.cfo_hz is not None
    plain.cfo_hz[bad] += np.linspace(0, 2e-6 * 5.825e9, len(bad))[:, None]


def fade(plain: Plain, bad: np.ndarray) -> None:
    plain.iq[bad] *= np.logspace(0, -1, len(bad))[:, None, None]


PLANTED: dict[str, tuple[Callable[[Plain, np.ndarray], None], Verdict]] = {
    "clipping": (clip, Verdict.FAULT),
    "silent-antennas": (quieten, Verdict.FAULT),
    "silent-antennas deaf": (deafen, Verdict.FAULT),
    "copied-antennas": (copy_antenna, Verdict.FAULT),
    "copies": (copy_exactly, Verdict.FAULT),
    "copies scaled": (copy_scaled_and_turned, Verdict.FAULT),
    "copies within": (repeat, Verdict.FAULT),
    "dc": (add_dc, Verdict.NOTE),
    "dc much": (add_much_dc, Verdict.FAULT),
    "snr": (add_noise, Verdict.NOTE),
    "snr drowned": (drown, Verdict.FAULT),
    "cfo-drift": (warm_up, Verdict.NOTE),
    "power-drift": (fade, Verdict.NOTE),
}


def faults(checked: Checked) -> list[str]:
    return [name for name, finding in checked.findings.items() if finding.verdict == Verdict.FAULT]


@pytest.mark.parametrize("planted", PLANTED)
def test_a_fault_of_one_recording_is_found_with_its_name(planted: str, healthy: Frames) -> None:
    plant, verdict = PLANTED[planted]
    plain = Plain.of(healthy)
    plant(plain, plain.where(*BAD))
    checked = check_frames(plain.frames())
    finding = checked.findings[planted.split()[0]]
    assert finding.verdict == verdict
    assert NAME in finding.found
    assert finding.advice
    assert set(faults(checked)) == ({planted.split()[0]} if verdict == Verdict.FAULT else set())


def test_without_one_there_is_none(healthy: Frames) -> None:
    checked = check_frames(healthy)
    assert checked.fit
    told = {name for name, finding in checked.findings.items() if finding.verdict != Verdict.FINE}
    assert told <= {"recorded-cfo", "cfo-descriptor", "residual-cfo", "neighbours", "frames", "room"}


def test_devices_that_keep_their_spot_in_every_capture_are_found(healthy: Frames) -> None:
    """The channel of each device's first frame, on all of its frames: ratios of antennas never change."""
    plain = Plain.of(healthy)
    rng = np.random.default_rng(1)
    for device in np.unique(plain.device):
        own = plain.device == device
        gain = rng.normal(size=(4, 2)) @ [1, 1j]
        noise = rng.normal(size=(*plain.iq[own].shape, 2)) @ [0.03, 0.03j]
        plain.iq[own] = gain[:, None] * plain.iq[own][:, :1] + noise
    checked = check_frames(plain.frames())
    assert faults(checked) == ["room"]
    assert "from capture to capture" in checked.findings["room"].found


def test_frames_that_are_no_numbers_are_left_out_and_counted(healthy: Frames) -> None:
    plain = Plain.of(healthy)
    frames = plain.frames()
    bad = plain.where(*BAD)[:5]
    frames.source.iq[bad[:3], 0, 0] = np.nan  # type: ignore[attr-defined]
    frames.source.iq[bad[3:5]] = 0  # type: ignore[attr-defined]
    checked = check_frames(frames)
    assert faults(checked) == ["unusable-frames"]
    assert checked.findings["unusable-frames"].numbers == {"frames": 5}


def test_a_set_of_nothing_is_an_error(healthy: Frames) -> None:
    frames = Plain.of(healthy).frames()
    frames.source.iq[:] = np.nan  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="holds a finite signal"):
        check_frames(frames)
    with pytest.raises(DataError, match="no frames"):
        check_frames(healthy.select([]))
    with pytest.raises(ConfigError, match="6 or more"):
        check_frames(healthy, frames=2)


class TestLayout:
    def without(self, healthy: Frames, *absent: tuple[str, str, str]) -> Checked:
        plain = Plain.of(healthy)
        keep = np.ones(len(plain.iq), dtype=bool)
        for one in absent:
            keep[plain.where(*one)] = False
        return check_frames(plain.keep(keep).frames())

    def test_a_missing_recording_is_worth_knowing(self, healthy: Frames) -> None:
        checked = self.without(healthy, BAD)
        assert checked.findings["captures"].verdict == Verdict.NOTE
        assert NAME in checked.findings["captures"].found

    def test_a_capture_that_one_device_alone_has_names_it(self, healthy: Frames) -> None:
        checked = self.without(healthy, *(("E1", device, "L3") for device in ("D01", "D02", "D04")))
        assert checked.findings["captures"].verdict == Verdict.FAULT
        assert "E1/L3" in checked.findings["captures"].found

    def test_an_environment_without_a_device_is_a_fault(self, healthy: Frames) -> None:
        checked = self.without(healthy, ("E2", "D03", "L1"), ("E2", "D03", "L3"))
        assert faults(checked) == ["environments"]
        assert "D03 in E2" in checked.findings["environments"].found

    def test_one_environment_or_one_device_alone(self, healthy: Frames) -> None:
        alone = check_frames(healthy.where(environment="E1"))
        assert alone.fit
        single = check_frames(Plain.of(healthy.where(device="D01")).frames())
        assert faults(single) == ["devices"]
        assert "cannot be tested" in single.findings["room"].found

    def test_devices_that_were_recorded_unevenly(self, healthy: Frames) -> None:
        for every, verdict in {3: Verdict.NOTE, 14: Verdict.FAULT}.items():
            rare = healthy.device == 2
            checked = check_frames(healthy.select(~rare | (healthy.frame % every == 0)))
            assert checked.findings["devices"].verdict == verdict
            assert "D03" in checked.findings["devices"].found

    def test_short_recordings(self, healthy: Frames) -> None:
        assert check_frames(healthy.select(healthy.frame < 8)).findings["frames"].verdict == Verdict.NOTE


def test_the_cfo_that_moves_between_captures_is_told_from_one_that_stays(healthy: Frames) -> None:
    plain = Plain.of(healthy)
    rng = np.random.default_rng(2)
    own = rng.normal(0, 20e3, 4)

    def given(moves_hz: float) -> Finding:
        cfo_hz = np.empty((len(plain.iq), 4))
        for recording in np.unique(np.stack([plain.environment, plain.device, plain.capture]), axis=1).T:
            here = plain.where(*recording)
            device = int(recording[1][1:]) - 1
            cfo_hz[here] = own[device] + moves_hz * rng.normal() + rng.normal(0, 50, (len(here), 4))
        return check_frames(changed(plain, cfo_hz=cfo_hz).frames()).findings["recorded-cfo"]

    assert "identifies devices" in given(0.0).found
    assert "only within a capture" in given(1e7).found
    assert "no CFO was recorded" in check_frames(changed(plain, cfo_hz=None).frames()).findings["recorded-cfo"].found


def test_a_jitter_of_each_recording_is_told_from_one_of_the_place_and_one_of_the_device(healthy: Frames) -> None:
    plain, rng = Plain.of(healthy), np.random.default_rng(3)
    recordings = np.unique(np.stack([plain.environment, plain.device, plain.capture]), axis=1).T

    def given(owner: Callable[[str, str, str], str]) -> Finding:
        sizes, cfo_hz = {owner(*one): rng.uniform(50, 1500) for one in recordings}, np.empty((len(plain.iq), 4))
        for one in recordings:
            here = plain.where(*one)
            cfo_hz[here] = rng.normal(0, sizes[owner(*one)], (len(here), 4))
        return check_frames(changed(plain, cfo_hz=cfo_hz).frames()).findings["cfo-descriptor"]

    of_recording = given(lambda environment, device, capture: f"{environment}/{device}/{capture}")
    assert of_recording.verdict == Verdict.NOTE
    assert "--held-out block" in of_recording.advice
    assert given(lambda environment, device, capture: f"{environment}/{capture}").verdict == Verdict.FINE
    assert given(lambda environment, device, capture: device).verdict == Verdict.FINE  # what hardware may be
    none = check_frames(changed(plain, cfo_hz=None).frames()).findings["cfo-descriptor"]
    assert "no CFO was recorded" in none.found
    assert none.verdict == Verdict.SKIPPED  # and not fine


def test_one_antenna_without_a_preamble_says_what_it_cannot_tell(healthy: Frames) -> None:
    plain = Plain.of(healthy)
    plain.iq, plain.cfo_hz, plain.sample_rate_hz = plain.iq[:, :1].copy(), None, 3e6
    checked = check_frames(plain.frames())
    assert checked.fit
    assert "cannot be tested" in checked.findings["room"].found
    skipped = sum(finding.verdict == Verdict.SKIPPED for finding in checked.findings.values())
    assert skipped > 0
    assert f"not looked at: {skipped}." in checked.summary


def test_frames_of_subcarriers_are_channels_already(healthy: Frames) -> None:
    rng = np.random.default_rng(3)
    plain = Plain.of(healthy)
    own = {device: rng.normal(size=(4, 30, 2)) @ [1, 1j] for device in np.unique(plain.device)}
    for spread, verdict in {0.2: Verdict.FAULT, 20.0: Verdict.FINE}.items():
        plain.iq = np.stack([own[device] + spread * (rng.normal(size=(4, 30, 2)) @ [1, 1j]) for device in plain.device])
        checked = check_frames(changed(plain.frames(), domain=SUBCARRIERS))
        assert checked.findings["room"].verdict == verdict
        assert "subcarriers" in checked.findings["dc"].found


def test_frames_of_nobody_are_refused(healthy: Frames) -> None:
    plain = Plain.of(healthy)
    plain.device = np.where(plain.device == "D02", UNLABELLED, plain.device)
    with pytest.raises(DataError, match="their devices are unknown"):
        check_frames(plain.frames())


@pytest.mark.usefixtures("own_parts")
def test_a_check_is_added_by_one_function(healthy: Frames) -> None:
    @register_check("mine")
    def mine(evidence: Evidence) -> Finding:
        return Finding(Verdict.FAULT, f"{len(evidence.frames)} frames are too few for me.")

    assert "mine" in CHECKS
    assert faults(check_frames(healthy)) == ["mine"]


def test_the_set_on_disk_and_in_memory_are_judged_alike(healthy: Frames, tmp_path: Path) -> None:
    from pisa_capc.evidence.checks import check

    healthy.save(tmp_path / "set")
    on_disk, in_memory = check(tmp_path / "set", show_progress=False), check_frames(healthy)
    assert {k: f.found for k, f in on_disk.findings.items()} == {k: f.found for k, f in in_memory.findings.items()}
