"""Bytes of a stream → the frames in it, with the numbers of their samples, whatever is missing in between."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.live.listen.receiver import ReceiverCheck
from pisa_capc.signal.detection import FoundFrame, finder_of
from pisa_capc.signal.detection.finding import placed
from pisa_capc.signal.recordings import About, Annotation
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.resample import Resampled
from pisa_capc.signal.waveforms import Waveform

ENDLESS = 1 << 62
LEAST_S = 0.0015  # seconds of samples that are waited for in any case
FAMILIAR = 4096
KEPT = 2048  # samples of a frame that are handed on: beyond the addresses at every rate of Wi-Fi
# What is looked at for another number of antennas, where nothing was found: after so many seconds, and at the end.
WONDER_S, WONDER_SAMPLES, ARRAYS, ENOUGH = (2.0, 20.0), 1 << 19, (1, 2, 4, 8), 2


class Hearing:
    """Finds the frames of a stream that comes in blocks with the numbers of their first samples.

    Where samples are missing a new detector begins: a frame that is cut there is found from its preamble on, as at the
    end of a recording. Of each frame the first `kept` samples are handed on. curious: where nothing is found, see
    whether there would be with another number of antennas.
    """

    def __init__(
        self, about: About, encoding: Encoding, waveform: str | Waveform, kept: int = KEPT, curious: bool = True
    ) -> None:
        self._about, self._encoding, self._name, self.kept = about, encoding, waveform, kept
        self._finder = finder_of(waveform).keeping(kept)
        self.waveform = self._finder.waveform(about)
        self.receiver = ReceiverCheck(about.antennas, encoding, about.sample_rate_hz)
        self._finder.searched(_Window(about))  # refused here, if at all
        self._familiar: OrderedDict[str, None] = OrderedDict()  # addresses that had a right checksum
        self._unheard: _Unheard | None = _Unheard(self) if curious else None
        self._begin(0)

    def _begin(self, first: int) -> None:
        self._first = self._next = first
        self._window = _Window(self._about)
        stream = self._finder.searched(self._window)
        self._resampled = stream if isinstance(stream, Resampled) else None
        self._whole = self._resampled is not None or self._encoding.kind == "u" or not self._finder.takes_bytes
        encoding = None if self._whole else self._encoding  # of what is not to be decoded
        self._detector = self._finder.detector(self._about, encoding)

    @property
    def settings(self) -> tuple[About, Encoding, str | Waveform, int]:
        """What another one like it is made with."""
        return self._about, self._encoding, self._name, self.kept

    @property
    def sample_bytes(self) -> int:
        """Of all antennas at one time."""
        return self._about.antennas * self._encoding.sample_bytes

    @property
    def least(self) -> int:
        """Samples that are waited for in any case."""
        return max(1024, int(LEAST_S * self._about.sample_rate_hz))

    @property
    def wanted(self) -> int:
        """Further samples that are worth waiting for: until there are, nothing more can be found in them."""
        return self.wanted_after(self._next - self._first)

    def wanted_after(self, received: int) -> int:
        """The same after so many samples without an interruption."""
        return max(self._detector.wanted(received) if self._resampled is None else 0, self.least)

    def shown(self, data: NDArray[np.uint8], most: int) -> NDArray[np.complex64]:
        """(A, at most so many) samples, where they show that the receiver is in trouble; else none."""
        some = data[: most * self.sample_bytes * self.receiver.health.in_trouble]
        return self._encoding.decode(some, self._about.antennas)

    def push(self, data: NDArray[np.uint8], first: int, fresh: bool) -> list[FoundFrame]:
        """The frames that are complete with these samples, from number `first` on."""
        done = []
        if fresh or first != self._next:
            done = self.finish() if self._next > self._first else []
            self._begin(first)
        data = self.receiver.look(data)
        self._next = first + len(data) // self.sample_bytes
        found = done + self._placed(self._detector.push(self._at_rate(data) if self._whole else data))
        if self._unheard is not None:
            self._unheard = None if found else self._unheard.after(data, first)
        return found

    def finish(self) -> list[FoundFrame]:
        """The frames that the end of the stream cuts."""
        return self._placed(self._detector.finish())

    def advice(self, ended: bool = False) -> str:
        """Why nothing was found so far; empty if that is unknown or was reported."""
        return "" if self._unheard is None else self._unheard.advice(ended)

    def _at_rate(self, data: NDArray[np.uint8]) -> NDArray[np.complex64]:
        block = self._encoding.decode(data, self._about.antennas)
        return block if self._resampled is None else self._window.through(self._resampled, block)

    def _placed(self, found: list[FoundFrame]) -> list[FoundFrame]:
        if not found:
            return []
        return [placed(frame, self._about, self.waveform, self._first, self.kept) for frame in self._read(found)]

    def _read(self, found: list[FoundFrame]) -> list[FoundFrame]:
        """The frames with their headers.

        The checksum is asked for only where the address was not heard before: wrong bits do not give a known address.
        """
        found = self._finder.with_headers(found, addresses_only=True)
        new = [i for i, one in enumerate(found) if one.header.fcs is None and self._is_new(one.header.transmitter)]
        for i, whole in zip(new, self._finder.with_headers([found[i] for i in new]), strict=True):
            found[i] = whole
        for one in found:
            if one.header.fcs and one.header.transmitter is not None:
                self._familiar[one.header.transmitter] = None
                if len(self._familiar) > FAMILIAR:
                    self._familiar.popitem(last=False)
        return found

    def _is_new(self, address: str | None) -> bool:
        if address is None or address not in self._familiar:
            return address is not None
        self._familiar.move_to_end(address)
        return False


class _Window:
    """The newest samples of a stream as a `Recording`, for the resampler, which asks for what it needs."""

    annotations: tuple[Annotation, ...] = ()

    def __init__(self, about: About) -> None:
        self.about = replace(about, length=ENDLESS)
        self._held = np.empty((about.antennas, 0), dtype=np.complex64)
        self._first = 0  # number of the first that is held
        self._given = 0  # outputs so far

    def through(self, stream: Resampled, block: NDArray[np.complex64]) -> NDArray[np.complex64]:
        """The outputs that these further samples complete."""
        self._held = np.concatenate([self._held, block], axis=1)
        complete = stream.complete(self._first + self._held.shape[1])
        out = stream.read(self._given, complete - self._given)
        self._given = complete
        unneeded = max(0, stream.needed(complete) - self._first)
        self._held, self._first = self._held[:, unneeded:].copy(), self._first + unneeded
        return out

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        return self._held[:, first - self._first :][:, :count]

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        raise NotImplementedError  # nobody reads a window to its end


class _Unheard:
    """The newest samples of a stream in which nothing was found, to be read with other numbers of antennas."""

    def __init__(self, hearing: Hearing) -> None:
        self._about, self._encoding, self._waveform, _ = hearing.settings
        self._pieces: deque[NDArray[np.uint8]] = deque()
        self._next = self._looks = 0

    def after(self, data: NDArray[np.uint8], first: int) -> _Unheard:
        size = self._about.antennas * self._encoding.sample_bytes
        if first != self._next:
            self._pieces.clear()
        self._next = first + len(data) // size
        self._pieces.append(data.copy())
        while sum(map(len, self._pieces)) - len(self._pieces[0]) > WONDER_SAMPLES * size:
            self._pieces.popleft()
        return self

    def advice(self, ended: bool) -> str:
        due = self._looks < len(WONDER_S) and self._next > WONDER_S[self._looks] * self._about.sample_rate_hz
        if not self._pieces or not (due or ended):
            return ""
        self._looks += 1
        data = np.concatenate(self._pieces)
        counts = {antennas: self._frames(data, antennas) for antennas in ARRAYS if antennas != self._about.antennas}
        likely = max(counts, key=counts.__getitem__)
        if counts[likely] < ENOUGH:
            return ""
        self._looks = len(WONDER_S)
        return (
            f"{self._about.name}: no frame is found with {self._about.antennas} antenna(s); read as {likely}, the same "
            f"samples hold {counts[likely]:,}. Give --antennas {likely}, and a model that was trained for as many."
        )

    def _frames(self, data: NDArray[np.uint8], antennas: int) -> int:
        about = replace(self._about, antennas=antennas, geometry=None)
        hearing = Hearing(about, self._encoding, self._waveform, 0, curious=False)
        whole = len(data) // hearing.sample_bytes * hearing.sample_bytes
        return len(hearing.push(data[:whole], 0, True)) + len(hearing.finish())
