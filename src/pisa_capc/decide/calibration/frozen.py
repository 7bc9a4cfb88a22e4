r"""Frozen use of U-CAPC: prototypes and class potentials fitted on one stream, applied to another, frame by frame.

With p_k and g_k of a group as `UCAPC.calibrate` leaves them, a new frame of that group gets

    s = ℓ + λ_p zᵀp / τ_p,      π = softmax(s / ε + g)          (softmax(s) where no prior is imposed)

which are Eqs. (prototype_scores), (prototype_update) and (ucapc_final_prediction) with everything that belongs to the
group held still. A frame's result depends on that frame alone, so a decision needs no other frame of its stream, and
the frames of the fit get exactly the result of the fit.

Which p and g: those of the frame's own capture where it was fitted. A capture that was not gets the pooled set, fitted
over all frames as one group; every result shows this
(`Applied.pooled`), with a warning, because a capture's own shift is then not corrected.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pisa_capc.core.config import from_mapping
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.store.pair import check_shapes, described, write_pair
from pisa_capc.data.store.signature import check_signature
from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.careful import warn_where_uneven
from pisa_capc.decide.calibration.inputs import Array, Captures, Inputs, check_inputs
from pisa_capc.decide.calibration.result import Calibration, Recorder, html_table
from pisa_capc.decide.calibration.ucapc import UCAPC, final_probability, fuse_scores, head_of, prototype_scores
from pisa_capc.decide.calibration.workspace import batches, block_rows, read_embedding, read_logits, row_blocks
from pisa_capc.model.inference.statistics import SourceStatistics

NAME, SCHEMA, MADE_BY = "calibration", 1, "`pisa calibrate fit`"


@dataclass(frozen=True, repr=False)
class Applied(Calibration):
    """Frames calibrated with what was fitted elsewhere."""

    pooled: tuple[str | int, ...] = ()  # captures that were not fitted, and got the pooled prototypes


@dataclass(frozen=True, repr=False)
class FrozenCalibration:
    """Fitted prototypes and potentials of R captures, and of all their frames together.

    >>> frozen = UCAPC().fit(embedding, logits, capture)                    # doctest: +SKIP
    >>> frozen.predict(new_embedding, new_logits, new_capture)              # doctest: +SKIP
    """

    settings: UCAPC
    captures: tuple[str | int, ...]
    prototypes: np.ndarray  # (R, C, D) unit length, zero for a class without one
    potentials: np.ndarray | None  # (R, C), or none where no prior is imposed
    pooled_prototypes: np.ndarray  # (C, D)
    pooled_potentials: np.ndarray | None  # (C,)

    @classmethod
    def fit(
        cls,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        settings: Calibrator | None = None,
        source: SourceStatistics | None = None,
    ) -> FrozenCalibration:
        """Calibrate these frames, embedding (N, D) and logits (N, C), and keep what was learnt of their captures."""
        settings = settings or UCAPC()
        if not settings.freezes:
            raise ConfigError(
                f"{settings.title} decides the frames of a call together and learns nothing that later frames could "
                "use. Call calibrate with all frames, or fit U-CAPC or careful."
            )
        if settings.group == "auto":
            raise ConfigError(
                "group is auto: groups that were found have no names by which another stream could ask for them. "
                "Use group=capture or none here, or OnlineCalibrator, which recognises groups by their frames."
            )
        own = settings.calibrate(embedding, logits, capture, source)
        warn_where_uneven(settings, own, source or SourceStatistics())
        pooled = own
        if len(own.captures) > 1:
            pooled = settings.calibrate(embedding, logits, source=source)
        shape = (len(own.captures), own.inputs.classes, own.inputs.embedding.shape[1])
        return cls(
            head_of(settings, balanced=own.potentials is not None),
            tuple(summary.capture for summary in own.captures),
            np.zeros(shape) if own.prototypes is None else own.prototypes,
            own.potentials,
            np.zeros(shape[1:]) if pooled.prototypes is None else pooled.prototypes[0],
            None if pooled.potentials is None else pooled.potentials[0],
        )

    def __repr__(self) -> str:
        of = f"{len(self.captures):,} captures, {self.classes} classes, {self.features} features"
        return f"{type(self).__name__}({of})"

    def _repr_html_(self) -> str:
        """For notebooks: the captures."""
        return html_table(repr(self), ("capture",), [(capture,) for capture in self.captures])

    @property
    def classes(self) -> int:
        return self.pooled_prototypes.shape[0]

    @property
    def features(self) -> int:
        return self.pooled_prototypes.shape[1]

    def apply(self, embedding: Array, logits: Array, capture: Captures | None = None) -> Applied:
        """Calibrated frames; each depends on itself and its capture's name only.

        Without `capture` all frames get the pooled set, which is then what was asked for and no cause for a warning.
        """
        inputs = check_inputs(embedding, logits, capture, self.settings.group)
        self._check(inputs)
        grouped = capture is not None and self.settings.group == "capture"
        number = {key: r for r, key in enumerate(self.captures)} if grouped else {}
        chosen = [number.get(key, len(self.captures)) for key in inputs.groups.keys]
        unknown = tuple(key for key in inputs.groups.keys if key not in number) if grouped else ()
        if unknown:
            warnings.warn(_unknown(unknown, self.captures), stacklevel=2)
        recorder = Recorder(inputs)
        prototypes = np.concatenate((self.prototypes, self.pooled_prototypes[None]))
        potentials = None
        if self.potentials is not None and self.pooled_potentials is not None:
            potentials = np.concatenate((self.potentials, self.pooled_potentials[None]))
        for batch in batches(inputs):
            self._apply_batch(inputs, batch, [chosen[r] for r in batch], prototypes, potentials, recorder)
        return Applied(**vars(recorder.finish()), pooled=unknown)

    def predict_proba(self, embedding: Array, logits: Array, capture: Captures | None = None) -> Array:
        """Calibrated probabilities (N, C), as of `apply`."""
        return self.apply(embedding, logits, capture).probability

    def predict(self, embedding: Array, logits: Array, capture: Captures | None = None) -> Array:
        """Calibrated decisions (N,), as of `apply`."""
        return self.apply(embedding, logits, capture).prediction

    def _apply_batch(
        self,
        inputs: Inputs,
        batch: list[int],
        chosen: list[int],
        prototypes: np.ndarray,
        potentials: np.ndarray | None,
        recorder: Recorder,
    ) -> None:
        device = inputs.logits.device
        p = torch.from_numpy(prototypes[chosen]).to(device)
        g = None if potentials is None else torch.from_numpy(potentials[chosen]).to(device)
        for rows in row_blocks(inputs.groups, batch, max(1, block_rows(inputs) // len(batch)), keep=False):
            logits = read_logits(inputs, rows)
            agreement = prototype_scores(read_embedding(inputs, rows), p, self.settings.temperature)
            score = fuse_scores(logits, agreement, self.settings.fusion)
            recorder.write(batch, rows, logits, score, final_probability(score, g, self.settings.epsilon))
        recorder.prototypes(batch, p)
        recorder.potentials(batch, g)

    def _check(self, inputs: Inputs) -> None:
        found = (inputs.classes, inputs.embedding.shape[1])
        if found != (self.classes, self.features):
            raise DataError(
                f"this calibration was fitted for {self.classes} classes and {self.features} features; these scores "
                f"have {found[0]} and {found[1]}. Use scores of the same model."
            )

    def save(self, folder: str | Path) -> None:
        """Write `calibration.safetensors` and `calibration.json` into `folder`."""
        arrays = {"prototypes": self.prototypes, "pooled_prototypes": self.pooled_prototypes}
        if self.potentials is not None and self.pooled_potentials is not None:
            arrays |= {"potentials": self.potentials, "pooled_potentials": self.pooled_potentials}
        about: dict[str, Any] = {
            "kind": "frozen U-CAPC",
            "classes": self.classes,
            "features": self.features,
            "captures": list(self.captures),
            "settings": asdict(self.settings),
        }
        write_pair(Path(folder), NAME, SCHEMA, arrays, about)

    @classmethod
    def load(cls, folder: str | Path) -> FrozenCalibration:
        """Read what `save` wrote; refuse what does not fit, saying why.

        Of one that an earlier version fitted under its guard, the guard's decisions are left out: they are already in
        the prototypes and potentials.
        """
        check_signature(Path(folder))
        with described(Path(folder), NAME, SCHEMA, "a calibration", MADE_BY) as (arrays, about):
            settings = from_mapping(UCAPC, about["settings"], "settings")
            captures, classes, features = tuple(about["captures"]), about["classes"], about["features"]
            expected = {"prototypes": (len(captures), classes, features), "pooled_prototypes": (classes, features)}
            if settings.prior == "balanced":
                expected |= {"potentials": (len(captures), classes), "pooled_potentials": (classes,)}
            check_shapes(Path(folder), arrays, expected)
        return cls(
            settings,
            captures,
            arrays["prototypes"],
            arrays.get("potentials"),
            arrays["pooled_prototypes"],
            arrays.get("pooled_potentials"),
        )


def _unknown(unknown: tuple[str | int, ...], known: tuple[str | int, ...]) -> str:
    def named(keys: tuple[str | int, ...]) -> str:
        return ", ".join(map(str, keys[:5])) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")

    return (
        f"{len(unknown)} captures were not fitted and get the pooled prototypes: {named(unknown)}. "
        f"Fitted: {named(known)}."
    )
