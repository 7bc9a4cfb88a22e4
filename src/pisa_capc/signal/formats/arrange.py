"""Find the I/Q and CFO among named arrays, and which axis is which, by shape.

A frame is T×A. How frames are stacked is not agreed on: (n, T, A), (T, A, n), (A, T, n), … are all seen. Sizes tell
the axes apart: A is known, n is the length of the CFO where there is one, T is as given or 320. What remains ambiguous
is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import MODEL_SAMPLES
from pisa_capc.signal.formats.base import ImportOptions

DEFAULT_ANTENNAS = 4

Order = tuple[int, int, int]  # the axes of frames, antennas and samples


class Arranged(NamedTuple):
    """Named arrays as they are read: I/Q (n, A, T) complex64, CFO (n, A) float64 or None; words: what they were."""

    iq: NDArray[np.complex64]
    cfo_hz: NDArray[np.float64] | None
    words: str


def check_axes(axes: str | None) -> None:
    """Refuse an order of axes that is none."""
    if axes is not None and sorted(axes) != ["A", "T", "n"]:
        raise ConfigError(f"--axes {axes}: expected the letters n, T and A once each, as nTA.")


def arrange(arrays: Mapping[str, NDArray[Any]], options: ImportOptions, where: str) -> Arranged:
    """The I/Q and CFO among named arrays. `where` starts messages."""
    antennas = options.antennas or DEFAULT_ANTENNAS
    check_axes(options.axes)
    complex_arrays = {
        k: _restore(v, antennas, options.axes or "nTA")
        for k, v in arrays.items()
        if v.dtype.kind == "c" and v.ndim <= 3
    }
    if options.iq_key is not None:
        name = _named(options.iq_key, "--iq-key", arrays, where)
        if name not in complex_arrays:
            raise DataError(f"{where}: {_shapes({name: arrays[name]})} is not a complex array of frames.")
        complex_arrays = {name: complex_arrays[name]}
    fitting = {k: o for k, v in complex_arrays.items() if (o := _orders(v.shape, antennas, options))}
    if not fitting:
        raise DataError(f"{where}: {_misfit(arrays, complex_arrays, antennas, options)}")
    if len(fitting) > 1:
        several = _shapes({k: arrays[k] for k in fitting})
        raise DataError(f"{where}: several complex arrays with {antennas} antennas: {several}. Name one with --iq-key.")
    name, orders = next(iter(fitting.items()))
    iq = complex_arrays[name]
    cfo_name = _find_cfo(arrays, {iq.shape[o[0]] for o in orders}, antennas, options, where)
    if cfo_name is not None:
        lengths = {iq.shape[o[0]] for o in orders if _is_cfo(arrays[cfo_name], iq.shape[o[0]], antennas)}
        orders = [o for o in orders if iq.shape[o[0]] in lengths]
    if len(orders) > 1 and options.samples is None:
        orders = [o for o in orders if iq.shape[o[2]] == MODEL_SAMPLES] or orders
    if len(orders) > 1:
        raise DataError(
            f"{where}: frames and samples of {_shapes({name: arrays[name]})} cannot be told apart. "
            "Give --samples, or the order of the axes, as --axes nTA."
        )
    order = orders[0]
    frames_first = np.ascontiguousarray(iq.transpose(order), dtype=np.complex64)
    cfo_hz = None if cfo_name is None else _cfo(arrays[cfo_name], len(frames_first), antennas)
    letters = "".join("nAT"[order.index(axis)] for axis in range(3))
    words = f"I/Q in {name} {arrays[name].shape} as {letters} (--iq-key, --axes), "
    words += "no CFO (--cfo-key)" if cfo_name is None else f"CFO in {cfo_name} {arrays[cfo_name].shape}"
    return Arranged(frames_first, cfo_hz, words)


def _misfit(
    arrays: Mapping[str, NDArray[Any]],
    complex_arrays: Mapping[str, NDArray[Any]],
    antennas: int,
    options: ImportOptions,
) -> str:
    """Why none of the complex arrays fits, and what to do about it."""
    shapes = _shapes(arrays) or "no arrays"
    if not any(v.size for v in complex_arrays.values()) and not all(v.size for v in arrays.values()):
        return f"holds no frames; found {shapes}. Leave the file out."
    for option, without in (("axes", replace(options, axes=None)), ("samples", replace(options, samples=None))):
        fitting = {k: arrays[k] for k, v in complex_arrays.items() if _orders(v.shape, antennas, without)}
        if fitting:  # as soon as the option is left out
            given = f"--{option} {getattr(options, option)}"
            return f"{given} does not fit {_shapes(fitting)} with {antennas} antennas. Correct it, or leave it out."
    advice = (
        "If every file has another number of antennas give it with --antennas; otherwise leave this file out."
        if complex_arrays
        else "Expected the I/Q as one complex array of frames, samples and antennas."
    )
    return f"no complex array with {antennas} antennas; found {shapes}. {advice}"


def _orders(shape: tuple[int, ...], antennas: int, options: ImportOptions) -> list[Order]:
    """The readings of a shape that nothing known contradicts; a frame has more than one sample."""
    if options.axes is not None:
        candidates: list[Order] = [(options.axes.index("n"), options.axes.index("A"), options.axes.index("T"))]
    else:
        candidates = list(permutations(range(3), 3))
    fitting = [
        (n, a, t)
        for n, a, t in candidates
        if shape[a] == antennas and shape[t] > 1 and (options.samples is None or shape[t] == options.samples)
    ]
    # Orders that only exchange axes of length one read the same numbers.
    return list({tuple(i for i in order if shape[i] > 1): order for order in fitting}.values())


def _restore(array: NDArray[Any], antennas: int, axes: str) -> NDArray[Any]:
    """Three axes again where reading dropped those of length one: a single antenna, a single frame."""
    if array.ndim < 2:
        return array.reshape([array.size if letter == "T" else 1 for letter in axes])
    if array.ndim == 2:
        return np.expand_dims(array, axes.index("A" if antennas == 1 else "n"))
    return array


def _find_cfo(
    arrays: Mapping[str, NDArray[Any]], lengths: set[int], antennas: int, options: ImportOptions, where: str
) -> str | None:
    expected = "expected one value per frame and antenna, " + " or ".join(f"{n} × {antennas}" for n in sorted(lengths))
    if options.cfo_key is not None:
        name = _named(options.cfo_key, "--cfo-key", arrays, where)
        if not any(_is_cfo(arrays[name], n, antennas) for n in lengths):
            raise DataError(f"{where}: the CFO {_shapes({name: arrays[name]})} does not fit the frames; {expected}.")
        return name
    fitting = [k for k, v in arrays.items() if any(_is_cfo(v, n, antennas) for n in lengths)]
    called = [k for k, v in arrays.items() if "cfo" in k.lower() and v.dtype.kind in "fiu"]
    if len(fitting) > 1:
        fitting = [k for k in fitting if k in called] or fitting
    if len(fitting) > 1:
        several = _shapes({k: arrays[k] for k in fitting})
        raise DataError(f"{where}: several arrays could be the CFO: {several}. Name one with --cfo-key.")
    if not fitting and called:
        raise DataError(
            f"{where}: the CFO {_shapes({called[0]: arrays[called[0]]})} does not fit the frames; {expected}. Name "
            "another array with --cfo-key, or take this one out of the file."
        )
    return fitting[0] if fitting else None


def _is_cfo(array: NDArray[Any], frames: int, antennas: int) -> bool:
    sizes = [s for s in array.shape if s != 1]
    wanted = [s for s in (frames, antennas) if s != 1]
    return array.dtype.kind in "fiu" and sizes in (wanted, wanted[::-1]) and array.size == frames * antennas


def _cfo(array: NDArray[Any], frames: int, antennas: int) -> NDArray[np.float64]:
    """(n, A); an array of four frames and four antennas is taken as it stands."""
    by_frame = array.reshape(-1, antennas) if array.shape[:1] == (frames,) or array.ndim < 2 else array.T
    return np.ascontiguousarray(by_frame.reshape(frames, antennas), dtype=np.float64)


def _named(name: str, option: str, arrays: Mapping[str, NDArray[Any]], where: str) -> str:
    if name not in arrays:
        raise DataError(f"{where}: holds no array {name!r} ({option}); found {_shapes(arrays) or 'no arrays'}.")
    return name


def _shapes(arrays: Mapping[str, NDArray[Any]]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
