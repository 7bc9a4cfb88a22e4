"""What holds for every method, with encoders of each kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.inference import embed, load_model
from pisa_capc.model.methods import (
    METHODS,
    Method,
    build_method,
    method_list,
    method_names,
    method_title,
    register_method,
)
from pisa_capc.model.methods.preamble import BehindPreamble
from pisa_capc.model.stacked import bind_noise, stack
from pisa_capc.model.training import TrainingConfig, fit
from pisa_capc.model.training.stack import build_seeded
from tests.model.methods.tools import CLASSES, IN_EPOCHS, RUNS, batch, method, of_run, seeded, setup
from tests.model.training.tools import assert_identical, make_stack
from tests.problems import runs, small_frames

ENCODERS = ("cnn", "transformer", "cldnn")
# A method and an encoder know nothing of each other: every method with one of them, and the largest with all.
PAIRS = [(name, ENCODERS[i % len(ENCODERS)]) for i, name in enumerate(IN_EPOCHS) if name != "pisa"]
PAIRS += [("pisa", encoder) for encoder in ENCODERS]
ACROSS = [name for name, cls in METHODS.parts().items() if cls.least_environments > 1]
pytestmark = pytest.mark.filterwarnings("ignore:equaliser")  # the small problem sends tones, not preambles


def of(name: str) -> dict[str, Any]:
    """How to fit the method to the small problem."""
    equalised = issubclass(METHODS[name], BehindPreamble)  # must know the preamble that these frames do not have
    return {"method": name, "settings": {"waveform": "wifi"} if equalised else {}}


@pytest.mark.parametrize(("name", "encoder"), PAIRS)
def test_a_stack_computes_what_each_run_would_alone_and_again(name: str, encoder: str) -> None:
    built, data = method(name, encoder), batch()
    model = stack([build_seeded(built, seed) for seed in range(RUNS)], built.build(RUNS)).double().train()
    bind_noise(model, data.key)
    terms = built.loss(model, data)
    assert tuple(terms) == built.terms
    assert all(term.shape == (RUNS,) for term in terms.values())
    torch.stack(list(terms.values())).sum().backward()
    together = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert "classifier.weight" in together
    for run in range(RUNS):
        own = of_run(data, run)
        alone = seeded(built, own.key, run)
        found = built.loss(alone, own)
        torch.stack(list(found.values())).sum().backward()
        for term in built.terms:
            torch.testing.assert_close(found[term][0], terms[term][run], rtol=1e-6, atol=1e-9)
        for n, p in alone.named_parameters():
            assert (p.grad is None) == (n not in together), n
            if p.grad is not None:
                torch.testing.assert_close(p.grad[0], together[n][run], rtol=1e-5, atol=1e-8)
        again = built.loss(seeded(built, own.key, run), own)
        assert all(torch.equal(again[term], found[term]) for term in built.terms)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("name", IN_EPOCHS)
def test_logits_are_the_classifiers_of_the_embedding(name: str, encoder: str) -> None:
    data, model = batch(1), method(name, encoder).build().eval()
    output = model(data.iq[0].float(), data.descriptor[0].float(), data.antenna_keep[0])
    weight, bias = model.classifier.weight, model.classifier.bias
    assert weight.shape == (1, CLASSES, output.embedding.shape[1])
    torch.testing.assert_close(output.logits, output.embedding @ weight[0].T + bias[0])


@pytest.mark.parametrize(("name", "encoder"), PAIRS)
def test_a_trained_model_is_the_same_from_disk(name: str, encoder: str, tmp_path: Path) -> None:
    [run] = runs(small_frames(frames=20))
    how = TrainingConfig(epochs=1, batch=32)
    [trained] = fit([run], **of(name), encoder=encoder, training=how, device="cpu", out=tmp_path, show=False)
    found = load_model(tmp_path)
    assert_identical(trained, found)
    a, b = (embed(model, run.split.target) for model in (trained, found))
    assert np.array_equal(a.embedding, b.embedding)
    assert np.array_equal(a.logits, b.logits)
    assert found.statistics.weight.shape == (3, a.embedding.shape[1])


@pytest.mark.parametrize("name", IN_EPOCHS)
def test_steps_do_not_depend_on_the_neighbours_in_a_stack(name: str) -> None:
    """State of a method, as GroupDRO's weights, belongs to its run."""
    frames = small_frames(frames=20)
    these = runs(frames, (1, 1), (2, 2))
    losses = make_stack(frames, these, method=name).train_epoch(0)
    assert np.isfinite(losses).all()
    for i, run in enumerate(these):
        alone = make_stack(frames, [run], method=name).train_epoch(0)
        np.testing.assert_allclose(losses[:, i], alone[:, 0], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", IN_EPOCHS)
def test_every_method_learns_a_small_problem(name: str) -> None:
    [run] = runs(small_frames(frames=40))
    how = TrainingConfig(epochs=16, batch=64, learning_rate=5e-3)  # MMD needs batches that show its kernels something
    [trained] = fit([run], **of(name), encoder="cnn", training=how, device="cpu", show=False)
    assert trained.run.metrics.validation_f1 > 0.8  # chance is 0.33


@pytest.mark.parametrize("name", ACROSS)
def test_a_method_across_environments_refuses_a_single_one(name: str) -> None:
    [run] = runs(small_frames(environments=2))
    with pytest.raises(ConfigError, match=rf"{name}: .* needs 2 or more, found 1"):
        fit([run], method=name, encoder="cnn", device="cpu", show=False)


def test_the_list_says_of_every_method_what_it_is() -> None:
    found = method_list()
    assert [entry["name"] for entry in found] == method_names()
    assert all(entry["summary"] and entry["citation"] for entry in found)
    assert all(method_title(entry["name"]) for entry in found)


def test_erm_is_another_name_of_single() -> None:
    assert METHODS["erm"] is METHODS["single"]


def test_a_method_has_its_own_title_and_not_that_of_the_one_it_extends(own_parts: None) -> None:
    assert method_title("pisa-objective") == "PISA's objective alone"
    register_method("mine")(type("Mine", (METHODS["pisa"],), {}))
    assert method_title("mine") == "mine"
    assert method_title("absent") == "absent"


@pytest.mark.parametrize("cls", [object, type("Mine", (Method,), {}), int])
def test_what_is_not_a_method_is_refused(cls: type) -> None:
    with pytest.raises(ConfigError, match=r"method 'mine': expected a subclass of .* whose Settings is a dataclass"):
        register_method("mine")(cls)


def test_unknown_methods_and_settings_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'sigmix'"):
        build_method("sigmx", setup())
    with pytest.raises(ConfigError, match="Did you mean 'weight'"):
        method("coral", wieght=1.0)
    with pytest.raises(ConfigError, match="weight: expected a finite number, zero or more, found -1"):
        method("coral", weight=-1.0)


def numbers(settings: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The path of every number among settings."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from ((name, *path) for path in numbers(value))
        elif isinstance(value, int | float | tuple) and not isinstance(value, bool):
            yield (name,)


@pytest.mark.parametrize("name", IN_EPOCHS)
def test_numbers_that_are_not_finite_or_negative_are_refused_before_any_training(name: str) -> None:
    paths = list(numbers(method(name).describe()))
    assert paths
    for *parents, last in paths:
        whole = isinstance(reduce(dict.__getitem__, [*parents, last], method(name).describe()), int)
        for number in (-3,) if whole else (-3.0, math.nan, math.inf):
            value = [1.0, number] if last == "kernel_gammas" else number
            settings = reduce(lambda inner, parent: {parent: inner}, reversed(parents), {last: value})
            with pytest.raises(ConfigError, match=last):
                method(name, **settings)
