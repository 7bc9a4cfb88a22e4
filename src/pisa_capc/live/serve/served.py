"""What the page needs of a listener; `pisa_capc.live.listen.Listener` is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pisa_capc.live.listen import Air, Status
from pisa_capc.model.inference import SourceStatistics, TrainedModel
from pisa_capc.signal.detection import FoundFrame


class Known(Protocol):
    """A model, as far as the page shows it."""

    @property
    def devices(self) -> tuple[str, ...]: ...

    @property
    def about(self) -> Mapping[str, Any]: ...

    @property
    def statistics(self) -> SourceStatistics: ...


class ServedListener(Protocol):
    """May be asked from any thread."""

    @property
    def air(self) -> Air: ...

    @property
    def model(self) -> Known: ...

    @property
    def sample_rate_hz(self) -> float: ...

    def status(self) -> Status: ...

    def acknowledge(self, number: int, by: str) -> None: ...

    def frame(self, number: int) -> FoundFrame | None: ...

    def with_device(self, name: str, numbers: Sequence[int], anyway: bool = False) -> TrainedModel: ...

    def exchange(self, model: TrainedModel) -> None: ...
