r"""Unknown devices by fingerprint, with the neighbouring frames.

The senders of a capture's frames are unknown, but frames of one sender lie close to each other. With x the embeddings
along the axes on which classes differ, whitened by the spread W within sessions, the squared distance of two frames of
a session is 2d in the mean, d the number of axes. The mean of the m frames of the capture with

    ‖x_i − x_j‖² ≤ ν 2d,

frame i among them, stands in the place of frame i, and `session` scores it as the mean of √min(m, M) frames: of what is
near to a frame part is near because of its noise, and part is of others, however much of it there is.

A frame that is far from all others is left alone. Costs: few frames of an unknown device among many of a similar
device are absorbed by it. Whole captures are needed, so there is nothing in it for streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.data.sources import groups
from pisa_capc.decide.calibration.base import check_range, require
from pisa_capc.decide.calibration.openset.scores import Seen, register_rejection
from pisa_capc.decide.calibration.openset.session import SessionDistance, Sessions
from pisa_capc.model.inference.statistics import SourceStatistics

USER = "crowd"
DISTANCES = 1 << 23  # between frames that are held at a time


@register_rejection("crowd")
@dataclass(frozen=True)
class CrowdDistance(SessionDistance):
    """`session` of a frame together with those of its capture around it, as the module has it.

    Needs what `session` does; for the threshold also `session_capture`.
    """

    needs_captures = True

    near: float = 0.4  # ν; chosen on source environments: studies/strangers.py
    most: int = 9  # M

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, near=(0.0, 1e6), most=(1, float("inf")))

    def gather(self, source: SourceStatistics, seen: Seen, capture: Tensor) -> Seen:
        z = seen.embedding.double()
        project = Sessions.of(source, z).project(1, 0.0)
        mean, count = torch.empty_like(z), torch.empty(len(z), dtype=z.dtype, device=z.device)
        for members in groups(capture.cpu().numpy()):
            rows = torch.from_numpy(members).to(z.device)
            mean[rows], count[rows] = self.around(z[rows], z[rows] @ project)
        return seen._replace(embedding=mean, frames=count.clamp_max(self.most).sqrt())

    def around(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of the frames of a capture (n, D), which lie at x (n, d): means with those near them (n, D), and m (n,)."""
        limit = (2 * self.near * x.shape[1]) ** 0.5
        means, counts = [], []
        for rows in torch.arange(len(x), device=x.device).split(max(1, DISTANCES // len(x))):
            near = torch.cdist(x[rows], x) <= limit
            near[torch.arange(len(rows), device=x.device), rows] = True  # rounding may put a frame off itself
            counts.append(near.sum(dim=1).to(z.dtype))
            means.append(near.to(z.dtype) @ z / counts[-1][:, None])
        return torch.cat(means), torch.cat(counts)

    def held_out(self, source: SourceStatistics, seen: Seen, session: Tensor) -> Seen:
        """With the validation frames of the same capture; one of no session is left alone."""
        if source.session_capture is None:
            raise DataError(
                "crowd needs source_session_capture, the captures of the sessions, which are not with these scores: an "
                "earlier version trained the model. Train the model again, or choose another score, as session."
            )
        count = len(source.session_mean)  # type: ignore[arg-type]
        where = [require(source, f"session_{name}", (count,), seen.embedding, USER) for name in ("place", "capture")]
        capture = torch.unique(torch.stack(where), dim=1, return_inverse=True)[1]
        alone = count + torch.arange(len(session), device=session.device)
        return self.gather(source, seen, torch.where(session < 0, alone, capture[session.clamp_min(0)]))
