"""Encoders of ordinary layers: they simply work, and what would be trained wrongly is refused."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.scores import macro_f1
from pisa_capc.model.encoders import WIDTH, Encoder, build_encoder, encoder_names, encoder_title, register_encoder
from pisa_capc.model.inference import load_model
from pisa_capc.model.methods import build_method, register_method
from pisa_capc.model.methods.single import SingleMethod
from pisa_capc.model.networks import PISA, Single
from pisa_capc.model.stacked import check_run_axis, copy_run, copy_runs, stack, unstack
from pisa_capc.model.training import Run, fit
from pisa_capc.model.training.stack import build_seeded
from tests.model.methods.tools import IN_EPOCHS, RUNS, batch, setup
from tests.model.training.tools import FAST, Killed, assert_identical, kill_in_epoch, make_stack
from tests.problems import runs, small_frames

pytestmark = pytest.mark.usefixtures("own_parts")


class Plain(nn.Module):
    """What people write: convolutions with batch norm."""

    title = "Plain net"

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, WIDTH, 5, padding=2)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = F.relu(self.norm(self.conv(x)))
        return y


class Dropping(Plain):
    """With dropout layers of two kinds, one of them used twice, and time halved."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop = nn.Dropout(0.4)
        self.behind = nn.Sequential(nn.Dropout1d(0.2), self.drop, nn.AvgPool1d(2))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.behind(self.drop(super().forward(x)))
        return y


class Attending(Plain):
    """With dropout that no layer shows: inside attention, and as a function."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(F.dropout(super().forward(x), 0.1, self.training).transpose(1, 2)).transpose(1, 2)
        return y


class Recurrent(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gru = nn.GRU(channels, WIDTH // 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.gru(x.transpose(1, 2))[0].transpose(1, 2)
        return y


KINDS = {"plain": Plain, "dropping": Dropping, "attending": Attending, "recurrent": Recurrent}


@pytest.fixture(params=KINDS)
def mine(request: pytest.FixtureRequest) -> str:
    """The name of a registered encoder, one after the other."""
    register_encoder("mine", ordinary=True)(KINDS[request.param])
    return "mine"


@pytest.fixture
def plain() -> str:
    register_encoder("mine", ordinary=True)(Plain)
    return "mine"


def two_runs() -> list[Run]:
    return runs(small_frames(), (1, 1), (2, 2))


def test_an_ordinary_encoder_is_one_of_the_encoders(plain: str) -> None:
    assert encoder_names()[-1] == plain
    assert encoder_title(plain) == "Plain net"
    encoder = build_encoder(plain, streams=3, runs=2).eval()
    assert encoder(torch.randn(2, 5, 40, 6)).shape == (2, 5, 40, WIDTH)
    assert encoder(torch.randn(2, 5, 40, 6), tokens=8).shape == (2, 5, 8, WIDTH)
    assert encoder(torch.randn(2, 5, 37, 6), tokens=8).shape == (2, 5, 8, WIDTH)


def test_each_run_is_the_module_on_its_own_frames(plain: str) -> None:
    encoder: Any = build_encoder(plain, streams=2, runs=2).train()
    x = torch.randn(2, 5, 40, 4)
    expected = [copy(part.transpose(1, 2)).transpose(1, 2) for copy, part in zip(encoder.net.copies, x, strict=True)]
    assert torch.equal(encoder(x), torch.stack(expected))


def test_channels_are_in_phase_parts_of_all_antennas_before_their_quadrature_parts() -> None:
    seen: list[Tensor] = []

    class Looking(Plain):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return super().forward(x)

    register_encoder("mine", ordinary=True)(Looking)
    iq = torch.randn(3, 4, 40, 2)  # (N, A, T, 2)
    Single(10, antennas=4, encoder="mine")(iq)
    assert torch.equal(seen[0], torch.cat([iq[..., 0], iq[..., 1]], dim=1))
    assert seen[0].is_contiguous()


def test_runs_are_copied_into_a_stack_and_out_of_it(mine: str) -> None:
    models = [PISA(3, mine).train() for _ in range(2)]
    iq = torch.randn(2, 5, 4, 32, 2)
    for model, part in zip(models, iq, strict=True):
        model(part)  # gives each its own running statistics
    together = stack(models, PISA(3, mine, runs=2)).eval()
    found = together(iq).logits
    for run, model in enumerate(models):
        expected = model.eval()(iq[run]).logits
        torch.testing.assert_close(found[run], expected)
        alone = unstack(together, run, PISA(3, mine)).eval()
        torch.testing.assert_close(alone(iq[run]).logits, expected, rtol=0, atol=0)
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize("which", [[1], [0, 2], [0, 1, 2]])
def test_several_runs_are_copied_as_one_by_one(mine: str, which: list[int]) -> None:
    source, together, alone = (PISA(3, mine, runs=3) for _ in range(3))
    together.load_state_dict(alone.state_dict())
    copy_runs(source, together, which)
    for run in which:
        copy_run(source, run, alone, run)
    found = alone.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in together.state_dict().items())


def test_an_encoder_can_be_copied_by_itself(plain: str) -> None:
    one, two = build_encoder(plain), build_encoder(plain, runs=2)
    stack([one, one], two)
    assert all(torch.equal(a, b) for a, b in zip(two.net.copies[0].parameters(), one.parameters(), strict=True))  # type: ignore[union-attr,index]


def test_first_parameters_depend_on_the_seed_of_the_run_alone(mine: str) -> None:
    method = build_method("single", setup(mine))
    a = build_seeded(method, 3).state_dict()
    torch.manual_seed(99)
    b = build_seeded(method, 3).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    other = build_seeded(method, 4).state_dict()
    assert any(not torch.equal(a[name], other[name]) for name in a)


@pytest.mark.parametrize("method", ["single", "pisa"])
def test_the_score_in_training_is_the_score_of_the_model_that_is_returned(
    mine: str, method: str, tmp_path: Path
) -> None:
    """The defect: 0.62 in the log and 0.07 by the model, because copying a run took the first row of plain tensors."""
    how = FAST | {"encoder": mine, "method": method, "epochs": 4, "learning_rate": 5e-3}
    these = two_runs()
    models = fit(these, **how, stacked=method == "pisa", out=tmp_path)
    for run, trained in zip(these, models, strict=True):
        held_out = run.split.validation
        for model in (trained, load_model(tmp_path / run.name)):
            decided = model.predict_proba(held_out, "cpu").argmax(axis=1)
            found = macro_f1(held_out.device, decided, len(model.devices))
            assert found == pytest.approx(trained.run.metrics.validation_f1, abs=1e-9)
    assert max(model.run.metrics.validation_f1 for model in models) > 0.5  # chance is 0.33


def test_steps_do_not_depend_on_the_neighbours_in_a_stack(mine: str) -> None:
    frames, these = small_frames(), two_runs()
    losses = make_stack(frames, these, mine).train_epoch(0)
    for i, run in enumerate(these):
        alone = make_stack(frames, [run], mine).train_epoch(0)
        np.testing.assert_allclose(losses[:, i], alone[:, 0], rtol=2e-3, atol=1e-4)


def test_a_killed_training_comes_to_the_same_end(mine: str, tmp_path: Path) -> None:
    how = FAST | {"encoder": mine, "method": "single", "epochs": 3, "stacked": True}
    these = two_runs()
    whole = fit(these, **how, out=tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        kill_in_epoch(patch, 1)
        with pytest.raises(Killed):
            fit(these, **how, out=tmp_path / "killed")
    torch.manual_seed(123)  # whatever else has drawn in the meantime
    for a, b in zip(whole, fit(these, **how, out=tmp_path / "killed"), strict=True):
        assert_identical(a, b)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("stacked", [False, True])
def test_on_a_gpu_the_captured_step_computes_what_a_cpu_does(mine: str, stacked: bool, tmp_path: Path) -> None:
    """Dropout layers included; what draws from PyTorch's generator differs, as it says."""
    how = FAST | {"encoder": mine, "precision": "float32", "stacked": stacked}
    these = two_runs()
    found = fit(these, **how | {"device": "cuda"}, out=tmp_path)
    for a, b, run in zip(found, fit(these, **how), these, strict=True):
        tolerance = 0.5 if mine_draws_elsewhere() else 0.01
        for ours, right in zip(a.run.history, b.run.history, strict=True):
            assert ours.loss["cls"] == pytest.approx(right.loss["cls"], rel=tolerance)
        decided = load_model(tmp_path / run.name).predict_proba(run.split.validation, "cuda").argmax(axis=1)
        f1 = macro_f1(run.split.validation.device, decided, len(a.devices))
        assert f1 == pytest.approx(a.run.metrics.validation_f1, abs=0.05)
    mixed = fit(these, **how | {"device": "cuda", "precision": "bfloat16"})
    assert all(np.isfinite(model.run.metrics.validation_f1) for model in mixed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_what_depends_on_values_is_refused() -> None:
    """In a process of its own: a capture that failed may leave the GPU unusable."""
    script = (
        "from torch import nn\nfrom pisa_capc.model.encoders import register_encoder\nfrom pisa_capc.model.training "
        "import fit\nfrom tests.problems import runs, small_frames\n"
        "class Mine(nn.Conv1d):\n"
        "    def __init__(self, channels): super().__init__(channels, 32, 5, padding=2)\n"
        "    def forward(self, x): return super().forward(x) * x.mean().item()\n"
        "register_encoder('mine', ordinary=True)(Mine)\n"
        "fit(runs(small_frames()), encoder='mine', epochs=1, batch=16, device='cuda', show=False)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ConfigError: a step of this method and encoder cannot be captured for replay" in found.stderr


def mine_draws_elsewhere() -> bool:
    """Whether the encoder of this test draws from PyTorch's generator itself."""
    return any(isinstance(m, nn.MultiheadAttention) for m in build_encoder("mine").modules())


def test_training_leaves_the_generator_of_others_alone(mine: str) -> None:
    stacked = make_stack(small_frames(), two_runs(), mine)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    stacked.train_epoch(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_drops_as_often_as_it_says_and_anew_in_every_step() -> None:
    class Ones(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.each, self.whole, self.scale = nn.Dropout(0.3), nn.Dropout1d(0.5), nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            ones = self.scale * torch.ones(len(x), WIDTH, 64)
            return torch.cat([self.each(ones), self.whole(ones)], dim=2)

    from pisa_capc.model.stacked import bind_noise
    from pisa_capc.model.stacked.noise import step_key

    register_encoder("mine", ordinary=True)(Ones)
    encoder = build_encoder("mine", runs=2).train()
    seeds, key = torch.tensor([1, 2], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    bind_noise(encoder, key)
    drawn = []
    for step in (0, 1):
        key.copy_(step_key(seeds, torch.tensor([step], dtype=torch.int32)))
        drawn.append(encoder(torch.zeros(2, 50, 64, 2)).detach())  # (R, N, T′, WIDTH)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0][0], drawn[0][1])
    each, whole = drawn[0][:, :, :64], drawn[0][:, :, 64:]
    assert (each == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    assert each.max() == pytest.approx(1 / 0.7)
    assert (whole[:, :, 0] == 0).float().mean() == pytest.approx(0.5, abs=0.05)
    assert torch.equal(whole, whole[:, :, :1].expand_as(whole))
    assert torch.equal(encoder.eval()(torch.zeros(2, 3, 64, 2)), torch.ones(2, 3, 128, WIDTH))


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        (nn.Conv1d(WIDTH, 16, 1), r"gave \(6, 16, 32\) for frames \(6, 2, 32\); expected \(6, 32, T′\)"),
        (nn.Flatten(), r"gave \(6, 1024\) for frames"),
        (nn.GRU(32, 32), "gave tuple for frames"),
    ],
)
def test_other_outputs_are_refused_at_the_first_frame(behind: nn.Module, found: str) -> None:
    def build(channels: int) -> nn.Module:
        return nn.Sequential(Plain(channels), behind)

    register_encoder("mine", ordinary=True)(build)
    with pytest.raises(ConfigError, match=f"encoder 'mine': {found}"):
        build_encoder("mine")(torch.randn(1, 6, 32, 2))


def test_what_cannot_be_built_is_refused_when_it_is_registered() -> None:
    class Without(nn.Module):
        def __init__(self) -> None:
            super().__init__()

    with pytest.raises(ConfigError, match=r"'a': cannot be built as Without\(channels\)"):
        register_encoder("a", ordinary=True)(Without)
    with pytest.raises(ConfigError, match=r"'a': cannot be built as Plain\(streams, runs\): .* with ordinary=True"):
        register_encoder("a")(Plain)
    assert "a" not in encoder_names()


def test_what_has_no_shape_yet_is_refused() -> None:
    register_encoder("lazy", ordinary=True)(lambda channels: nn.LazyConv1d(WIDTH, 3))
    with pytest.raises(ConfigError, match="'lazy': weight has no shape before the first frame"):
        build_encoder("lazy")


def test_names_cannot_be_taken() -> None:
    with pytest.raises(ConfigError, match="encoder 'cnn': the name is taken"):
        register_encoder("cnn", ordinary=True)(Plain)


class IgnoresRuns(Encoder):
    """As the issue has it: ordinary layers, and `runs` is ignored."""

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.net = self.layers(2 * streams)

    def layers(self, channels: int) -> nn.Module:
        return nn.Conv1d(channels, WIDTH, 5, padding=2)

    def forward(self, x: Tensor, tokens: int | None = None) -> Tensor:
        y: Tensor = self.net(x[0].transpose(1, 2)).transpose(1, 2)[None]
        return y


class OneFilter(IgnoresRuns):
    """Its leading size is one, as that of a stack of one run."""

    def layers(self, channels: int) -> nn.Module:
        return nn.Conv1d(channels, 1, 5, bias=False)


class Pair(IgnoresRuns):
    """Its leading size is two, as that of a stack of two runs."""

    def layers(self, channels: int) -> nn.Module:
        return nn.Conv1d(channels, 2, 5, bias=False)


class PlainNorm(IgnoresRuns):
    def layers(self, channels: int) -> nn.Module:
        norm = nn.BatchNorm1d(channels, affine=False)
        norm.running_mean = norm.running_var = None
        return norm


class ListOfRuns(Encoder):
    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Conv1d(2 * streams, WIDTH, 5) for _ in range(runs))


@pytest.mark.parametrize(
    ("cls", "found"),
    [
        (IgnoresRuns, r"net\.weight is \(32, 2, 5\) with one run and \(32, 2, 5\) with two; .* \(runs, 32, 2, 5\)"),
        (OneFilter, r"net\.weight is \(1, 2, 5\) with one run and \(1, 2, 5\) with two"),
        (Pair, r"net\.weight is \(2, 2, 5\) with one run and \(2, 2, 5\) with two"),
        (PlainNorm, r"net\.num_batches_tracked is \(\) with one run and \(\) with two; .* \(runs\)"),
        (ListOfRuns, r"nets\.0\.weight is \(32, 2, 5\) with one run"),
    ],
)
def test_tensors_without_their_axis_of_runs_are_refused_by_name_and_shape(cls: type[Encoder], found: str) -> None:
    register_encoder("wrong")(cls)
    message = rf"encoder 'wrong': {found}.*ordinary=True"
    for build in (lambda: build_encoder("wrong"), lambda: PISA(3, "wrong")):
        with pytest.raises(ConfigError, match=message):
            build()
    with pytest.raises(ConfigError, match=message):
        fit(two_runs(), **FAST | {"encoder": "wrong"})


def test_a_method_whose_model_has_no_axis_of_runs_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    @register_method("wrong")
    class Wrong(SingleMethod):
        def build(self, runs: int = 1) -> nn.Module:
            model = super().build(runs)
            model.register_buffer("centre", torch.zeros(3))
            return model

    def read(*_: object) -> None:
        raise AssertionError("frames were read")

    monkeypatch.setattr(import_module("pisa_capc.model.training.fitting"), "Bank", read)
    with pytest.raises(ConfigError, match=r"method 'wrong': centre is \(3,\) .*\(runs, 3\).*persistent=False"):
        fit(two_runs(), **FAST | {"method": "wrong"})


@pytest.mark.parametrize("name", IN_EPOCHS)
def test_the_models_of_every_method_have_their_axis_of_runs(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    check_run_axis(build_method(name, setup("cnn")).build, name)
    assert torch.equal(torch.get_rng_state(), before)  # looking changes nobody's numbers


def test_models_of_every_method_take_an_ordinary_encoder(plain: str) -> None:
    for name in IN_EPOCHS:
        data = batch()
        built = build_method(name, setup(plain))
        terms = built.loss(built.build(RUNS).double().train(), data)
        assert all(term.shape == (RUNS,) for term in terms.values()), name
