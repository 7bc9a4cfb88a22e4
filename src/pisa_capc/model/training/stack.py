"""One stack of runs in training: R models, R optimisers, one step for all of them.

On a GPU the whole step (gathering the batch, forward, backward, update) is captured once and replayed, because for
models this small the launches would cost more than the arithmetic; so is a piece of the validation. On a CPU the same
runs as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.threads import undivided
from pisa_capc.data.scores import f1_per_class
from pisa_capc.model.inference.devices import frames_at_a_time
from pisa_capc.model.methods.registry import Batch, Method
from pisa_capc.model.objective import SPANS, draw_epoch
from pisa_capc.model.stacked import Fusable, PerRun, bind_noise, in_blocks, in_kernels, load_compiler, stack, unstack
from pisa_capc.model.stacked.compilers import compilers
from pisa_capc.model.stacked.noise import step_key
from pisa_capc.model.training.bank import Bank, even_pieces


class Stack:
    """Trains R runs of one method together.

    train, validation: each run's positions in the bank. All runs have equally many.
    precision: 'float32' or 'bfloat16' (mixed: activations and products in bfloat16, parameters in float32).
    fused: capture and compile; the default on a GPU.
    """

    def __init__(
        self,
        method: Method,
        bank: Bank,
        train: Sequence[NDArray[np.int64]],
        validation: Sequence[NDArray[np.int64]],
        seeds: Sequence[int],
        *,
        batch: int,
        learning_rate: float,
        weight_decay: float,
        precision: str = "float32",
        fused: bool | None = None,
    ) -> None:
        self.method, self.bank, self.seeds = method, bank, list(seeds)
        self.device = bank.device
        self.batch = batch
        self.autocast = precision == "bfloat16"
        self.fused = self.device.type == "cuda" if fused is None else fused
        self.train_rows = np.stack(train)
        self.validation_rows = np.stack(validation)
        self.steps = -(-self.train_rows.shape[1] // batch)
        runs = len(seeds)
        self.model = stack([build_seeded(method, seed) for seed in seeds], method.build(runs)).to(self.device)

        def buffer(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        antennas, samples = bank.frames.antennas, bank.frames.samples
        self._rows = buffer(self.steps, runs, batch, dtype=torch.int64)
        self._antenna_keep = buffer(self.steps, runs, batch, antennas, dtype=torch.bool)
        self._span_keep = buffer(self.steps, runs, batch, SPANS, dtype=torch.bool)
        self._streamed = None if bank.resident else buffer(runs, batch, antennas, samples, 2, dtype=torch.float32)
        self._position = buffer(1, dtype=torch.int64)  # step of the epoch
        self._step = buffer(1, dtype=torch.int32)  # step of the training, which a checkpoint says
        self._keys = buffer(self.steps, runs, dtype=torch.int32)  # of each step, from which all its draws come
        self._key = buffer(runs, dtype=torch.int32)
        self._short_seeds = torch.tensor([s & 0x7FFFFFFF for s in seeds], dtype=torch.int32)  # to be hashed
        bind_noise(self.model, self._key)
        self._ordinary = any(isinstance(module, PerRun) for module in self.model.modules())
        self.optimiser = self._adamw(lr=learning_rate, weight_decay=weight_decay)
        self.terms = method.terms
        self._losses = buffer(self.steps, runs, len(self.terms), dtype=torch.float32)
        self._drawn: dict[int, NDArray[np.int64]] = {}  # the rows of an epoch that lies ready in the buffers
        self._validation_order = torch.from_numpy(self.validation_rows).to(self.device)
        self._graph: torch.cuda.CUDAGraph | None = None  # the captured step
        self._validation_graph: torch.cuda.CUDAGraph | None = None  # of one of the pieces
        most = frames_at_a_time(self.device, samples, runs)
        self._pieces = torch.from_numpy(even_pieces(self.validation_rows, most)).to(self.device)
        self._decided = torch.zeros_like(self._pieces)
        self._piece = buffer(1, dtype=torch.int64)
        self._prepare()

    def _adamw(self, **settings: float) -> torch.optim.AdamW:
        """AdamW that can be captured on a GPU; ordinary modules may want their parameters where they are."""
        parameters = [*self.model.parameters()]
        if in_kernels(self._key) and not self._ordinary and all(p.dtype == torch.float32 for p in parameters):
            from pisa_capc.model.stacked.fused import FlatAdamW

            return FlatAdamW(parameters, **settings)
        gpu = self.device.type == "cuda"
        return torch.optim.AdamW(parameters, **settings, fused=True, capturable=gpu)  # type: ignore[arg-type]

    # One step ---------------------------------------------------------------------------------------------------------

    def _batch(self) -> Batch:
        rows = self._rows.index_select(0, self._position)[0]
        bank = self.bank
        return Batch(
            iq=bank.gather(rows) if self._streamed is None else self._streamed,
            descriptor=None if bank.descriptor is None else bank.descriptor[rows],
            label=bank.label[rows],
            environment=bank.environment[rows],
            antenna_keep=self._antenna_keep.index_select(0, self._position)[0],
            span_keep=self._span_keep.index_select(0, self._position)[0],
            key=self._key,
        )

    def _one_step(self) -> None:
        self._key.copy_(self._keys.index_select(0, self._position)[0])
        with self._precision():
            terms = self.method.loss(self.model, self._batch())
        losses = torch.stack([terms[name] for name in self.terms], dim=-1)  # (R, terms)
        losses.sum().backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self._losses.index_copy_(0, self._position, losses.detach().float()[None])
        self._position += 1
        self._step += 1

    def step(self) -> None:
        """The next step of the epoch."""
        if self._graph is not None:
            self._graph.replay()
            return
        # Our layers share blocks of frames among threads; ordinary modules know only operations.
        with undivided() if in_blocks(self._key) and not self._ordinary else nullcontext():
            self._one_step()

    def _precision(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast, cache_enabled=False)

    def _prepare(self) -> None:
        """Take a step so that the optimiser makes its state, capture one on a GPU, and undo what they changed."""
        initial = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.train()
        self.draw(0)
        if self.fused:
            with _stream_of_its_own():
                self._compile()
                self._warm_up(2)
            self._graph = self._captured(self._one_step, "a step")
        else:
            self._one_step()
        self.reset(initial)

    def _compile(self) -> None:
        """Compile all kernels of a step: ours elsewhere, while PyTorch's compiler is loaded and at work."""
        loading = load_compiler()
        with compilers() as running:
            with running.asked() if running is not None and self._is_ours() else nullcontext():
                self._warm_up(1)
                loading.join()
                self._fuse()
                self._warm_up(1)
            if running is not None:
                running.wait()
                running.close()

    def _is_ours(self) -> bool:
        """Whether all that a step does is known, so that a step on arbitrary memory does no harm."""
        parts = (self.method, *self.model.modules())
        return all(type(part).__module__.startswith(("pisa_capc.", "torch.nn.")) for part in parts)

    def _warm_up(self, steps: int) -> None:
        for _ in range(steps):
            self._one_step()
            self._position.zero_()

    def _fuse(self) -> None:
        torch.compiler.reset()  # what was compiled for earlier trainings of this process has no say in this one
        for module in self.model.modules():
            if isinstance(module, Fusable):
                module.fuse()
        self.method.fuse()

    def _captured(self, work: Callable[[], None], what: str) -> torch.cuda.CUDAGraph:
        """What `work` does, to be replayed. It was warmed up, and reads and leaves all that matters in buffers."""
        graph = torch.cuda.CUDAGraph()
        # Replays come one after the other, so the second capture may have the memory of the first.
        pool = None if self._graph is None else self._graph.pool()
        try:
            with torch.cuda.graph(graph, pool=pool):
                work()
        except RuntimeError as error:
            if "captur" not in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"{what} of this method and encoder cannot be captured for replay ({reason}). On a GPU nothing in it "
                "may depend on values, as .item() or a mask as index does. Change that, or train on a CPU."
            ) from error
        return graph

    def reset(self, model_state: Mapping[str, Tensor]) -> None:
        """Back to step 0 with these parameters; buffers keep their places, because a captured step points at them."""
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(model_state[name])
            for state in self.optimiser.state.values():
                for value in state.values():
                    value.zero_()
            self._step.zero_()
            self._position.zero_()

    # An epoch ---------------------------------------------------------------------------------------------------------

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """Draw the epoch's batches, views and keys into the step's buffers; returns the rows (steps, R, B)."""
        self._drawn.clear()
        frames, antennas = self.train_rows.shape[1], self.bank.frames.antennas
        plans = [draw_epoch(seed, epoch, frames, self.batch, antennas, *self.method.drops) for seed in self.seeds]
        rows = np.stack([own[plan.rows] for own, plan in zip(self.train_rows, plans, strict=True)], axis=1)
        self._rows.copy_(torch.from_numpy(rows))
        self._antenna_keep.copy_(torch.from_numpy(np.stack([p.antenna_keep for p in plans], axis=1)))
        self._span_keep.copy_(torch.from_numpy(np.stack([p.span_keep for p in plans], axis=1)))
        step = torch.arange(epoch * self.steps, (epoch + 1) * self.steps, dtype=torch.int32)
        self._keys.copy_(step_key(self._short_seeds, step[:, None]))
        self._position.zero_()
        return rows

    def train_epoch(
        self, epoch: int, after_step: Callable[[], None] = lambda: None, meanwhile: Callable[[], None] | None = None
    ) -> NDArray[np.float32]:
        """One epoch; returns the losses (steps, R, terms).

        meanwhile: what else to do while a GPU is still at work on the steps.
        """
        rows = self._drawn.pop(epoch, None)
        if rows is None:
            rows = self.draw(epoch)
        self._position.zero_()
        self.model.train()
        if self._streamed is None:
            for _ in range(self.steps):
                self.step()
                after_step()
        else:
            with closing(self.bank.stream(rows)) as batches:
                for iq in batches:
                    self._streamed.copy_(iq)
                    self.step()
                    after_step()
        # Now, while a GPU is still at work on the steps. Copies wait for their turn in its stream: what the steps read
        # changes behind the last of them.
        self._drawn = {epoch + 1: self.draw(epoch + 1)}
        if meanwhile is not None:
            meanwhile()
        return self._losses.cpu().numpy()

    @torch.no_grad()
    def validate(self) -> NDArray[np.float64]:
        """Macro-F1 of each run on its validation frames: (R,)."""
        self.model.eval()
        classes, runs = self.method.setup.classes, len(self.seeds)
        predicted = self._replayed_decisions() if self.fused and self.bank.resident else self._decisions()
        label = self.bank.label[self._validation_order]
        pair = (torch.arange(runs, device=self.device)[:, None] * classes + label) * classes + predicted
        confusion = torch.bincount(pair.flatten(), minlength=runs * classes**2).view(runs, classes, classes).double()
        values: NDArray[np.float64] = f1_per_class(confusion).mean(1).cpu().numpy()
        return values

    def _decide(self, iq: Tensor, rows: Tensor) -> Tensor:
        """The class that each frame is taken for: iq (R, B, A, T, 2) of rows (R, B) → (R, B)."""
        descriptor = None if self.bank.descriptor is None else self.bank.descriptor[rows]
        with self._precision():
            logits: Tensor = self.model(iq, descriptor).logits
        return logits.argmax(-1)

    def _decisions(self) -> Tensor:
        """Of all validation frames: (R, V)."""
        batch = frames_at_a_time(self.device, self.bank.frames.samples, len(self.seeds))
        starts = range(0, self.validation_rows.shape[1], batch)
        with closing(self.bank.stream([self.validation_rows[:, s : s + batch] for s in starts])) as batches:
            parts = [
                self._decide(iq, self._validation_order[:, start : start + batch])
                for start, iq in zip(starts, batches, strict=True)
            ]
        return torch.cat(parts, dim=1)

    def _decide_piece(self) -> None:
        """The next piece of the validation, from and into buffers."""
        rows = self._pieces.index_select(0, self._piece)[0]
        self._decided.index_copy_(0, self._piece, self._decide(self.bank.gather(rows), rows)[None])
        self._piece += 1

    def _replayed_decisions(self) -> Tensor:
        """`_decisions` of frames on a GPU. What is captured reads parameters where each step leaves them."""
        if self._validation_graph is None:
            with _stream_of_its_own():
                self._decide_piece()
            self._validation_graph = self._captured(self._decide_piece, "a validation")
        self._piece.zero_()
        for _ in range(len(self._pieces)):
            self._validation_graph.replay()
        return self._decided.transpose(0, 1).flatten(1)[:, : self.validation_rows.shape[1]]

    def spoilt_run(self) -> int | None:
        """The first run whose parameters are not all finite."""
        if torch.cat([p.detach().flatten() for p in self.model.parameters()]).isfinite().all():
            return None
        one = self.method.build(1).to(self.device)
        for run in range(len(self.seeds)):
            unstack(self.model, run, one)
            if not all(p.isfinite().all() for p in one.parameters()):
                return run
        return None

    # State ------------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Everything that the rest of the training depends on."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        names = [name for name, _ in self.model.named_parameters()]
        for i, state in self.optimiser.state_dict()["state"].items():
            for kind, value in state.items():
                tensors[f"optimiser.{names[i]}.{kind}"] = value
        return tensors | {"step": self._step}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.state().items():
                value.copy_(tensors[name])


def build_seeded(method: Method, seed: int) -> torch.nn.Module:
    """A model of one run whose initial parameters depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return method.build(1)


@contextmanager
def _stream_of_its_own() -> Iterator[None]:
    """Where to warm up what will be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)
