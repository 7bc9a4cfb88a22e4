r"""Unknown devices by fingerprint and carrier together.

A crystal has an offset of its own, some parts in a million, that a receiver measures on every frame. Two devices share
it often enough, and a device's moves with temperature and age, so it identifies no device alone. But an unknown device
has to match one device in both:

    u = min_s (z̄ − m_s)ᵀ (λS + W/n)⁻¹ (z̄ − m_s) + (c̄ − c_s)² / (λS_c + W_c/n)

with the carrier offset c̄ of the n frames in Hz, its means c_s in the sessions, and variances between and within them as
`openset.session` has them for embeddings. How far crystals move is learnt from the source: with another receiver, or in
a season that no session covers, all devices look unknown. So this is an option, not the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.base import require
from pisa_capc.decide.calibration.openset.scores import Seen, register_rejection
from pisa_capc.decide.calibration.openset.session import Distances, SessionDistance, between_sessions
from pisa_capc.model.inference.statistics import SourceStatistics

USER = "carrier"
FINEST_HZ2 = 1.0  # variance below which no receiver measures a carrier


@register_rejection("carrier")
@dataclass(frozen=True)
class CarrierDistance(SessionDistance):
    """`session` with the carrier offset, as the module has it.

    Needs what `session` does, and `session_carrier_hz`, `carrier_variance_hz2` and `validation_carrier_hz`.
    """

    needs_carrier = True

    def distances(self, source: SourceStatistics, like: Tensor) -> Distances:
        fingerprint = super().distances(source, like)
        if source.session_carrier_hz is None:
            raise DataError(
                "carrier needs source_session_carrier_hz, the carrier offsets of devices in each place and capture, "
                "which are not with these scores: the training set has no CFO, or an earlier version trained the "
                "model. Train the model again on frames with their CFO, or choose another score, as session."
            )
        count = len(source.session_mean)  # type: ignore[arg-type]
        means = require(source, "session_carrier_hz", (count,), like, USER)
        spread = require(source, "carrier_variance_hz2", (), like, USER).clamp_min(FINEST_HZ2)
        label, frames = (require(source, f"session_{name}", (count,), like, USER) for name in ("label", "frames"))
        moves = between_sessions(means[:, None], label, frames, spread[None, None])[0, 0]

        def squared(seen: Seen) -> Tensor:
            if seen.carrier_hz is None:
                raise DataError(
                    "carrier needs the carrier offset of every frame, cfo_hz, which is not with these scores. Write "
                    "them with pisa embed from frames that have it, or choose another score, as session."
                )
            off = seen.carrier_hz[:, None] - means
            return fingerprint(seen) + off.square() / (self.moved * moves + spread / seen.frames[:, None])

        return squared
