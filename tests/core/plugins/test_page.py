"""The examples on the page about plugins work as they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pisa_capc
from pisa_capc import load
from pisa_capc.core import plugins, registry
from pisa_capc.data.scores import as_probability
from pisa_capc.decide.calibration import calibrator
from pisa_capc.live.listen import StreamSettings, open_stream
from pisa_capc.live.notify import Notifier, open_sink
from pisa_capc.model.training import fit
from pisa_capc.signal.formats import ImportOptions, import_dataset
from pisa_capc.signal.measurement import FLAWS, FlawEstimator
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms import WAVEFORMS
from tests.live.listen.tools import Reading
from tests.live.serve.fake import an_alarm
from tests.model.training.tools import FAST
from tests.problems import runs, small_frames, tones

PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def train(encoder: str = "cnn", method: str = "single") -> None:
    [trained] = fit(runs(small_frames(frames=40)), **FAST | {"encoder": encoder, "method": method, "epochs": 8})
    assert trained.run.metrics.validation_f1 > 0.5  # chance is 0.33
    assert len(trained.run.plugins) == 1


def convert(name: str, folder: Path) -> None:
    (folder / "recordings").mkdir()
    for device in range(2):
        np.save(folder / "recordings" / f"D{device}.npy", tones(device, 1, frames=5, antennas=4))
    import_dataset(name, folder / "recordings", folder / "out", ImportOptions(environment="E7"))
    frames = load(folder / "out")
    assert (frames.environments, frames.devices, len(frames)) == (("E7",), ("D0", "D1"), 10)


def calibrate(name: str, _: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(20, 3))
    found = calibrator(name)().calibrate(np.zeros((20, 4)), logits)
    np.testing.assert_array_equal(found.prediction, logits.argmax(axis=1))
    assert found.probability.max() < as_probability(logits).max()


def simulate(name: str, folder: Path) -> None:
    [scene] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "scene.yaml").write_text(scene, encoding="utf-8")
    frames = pisa_capc.simulate(
        "wifi", folder / "set", scale=0.001, workers=1, scene=folder / "scene.yaml", show_progress=False
    )
    assert frames.sample_rate_hz == WAVEFORMS[name].sample_rate_hz
    made = json.loads((folder / "set" / "dataset.json").read_text(encoding="utf-8"))["provenance"]
    assert made["plugins"] == plugins.described(WAVEFORMS.origin(name))


def fit_flaw(name: str, _: Path) -> None:
    x = WAVEFORMS["wifi"].preamble()
    noise = np.random.default_rng(0).normal(size=(1, 1, 320, 2)) @ [1e-3, 1e-3j]
    found = FlawEstimator(WAVEFORMS["wifi"]).measure((x + 0.02 * FLAWS[name].of(x))[None, None] + noise)
    assert dict(zip(found.flaws, found.value[0], strict=True))[name] == pytest.approx(0.02, abs=0.005)


def listen(name: str, folder: Path) -> None:
    (folder / "roof.iq").write_bytes(bytes(range(40)))
    source, stream = open_stream(f"{name}:{folder / 'roof.iq'}", StreamSettings(assumed_antennas=2))
    assert stream.layout == (2, Encoding.named("cs16"))
    with Reading(source, 8) as reading:
        reading.wait_for(100)


def notify(name: str, folder: Path) -> None:
    with Notifier([open_sink(f"{name}:{folder / 'alarms.txt'}")]) as notifier:
        notifier.hear(an_alarm(state="resolved"))
    assert "not its address (resolved)" in (folder / "alarms.txt").read_text()


USES: dict[str, Callable[[str, Path], None]] = {
    "encoder": lambda name, _: train(encoder=name),
    "method": lambda name, _: train(method=name),
    "calibration": calibrate,
    "format": convert,
    "waveform": simulate,
    "flaw": fit_flaw,
    "source": listen,
    "alarm sink": notify,
}


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[re.findall(r'@register_\w+\("([\w-]+)"', text)[0] for text in EXAMPLES]
)
def test_an_example_is_a_plugin_and_does_what_it_says(example: str, tmp_path: Path, own_parts: None) -> None:
    path = tmp_path / "example.py"
    path.write_text(example, encoding="utf-8")
    origin = plugins.load_file(path)
    found = [(kind.kind, name) for kind in registry._every for name in kind if kind.origin(name) == origin]
    assert len(found) == 1
    [(kind, name)] = found
    USES[kind](name, tmp_path)


def test_there_is_an_example_of_each_kind_that_is_used_here() -> None:
    assert len(EXAMPLES) == len(USES)
