"""Pictures of a dataset: a frame, its spectrum, CFO over time and how far echoes reach; and what a check found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pisa_capc.data.frames import UnlabelledFrames, group_name, groups_of, load
from pisa_capc.data.samples import normalise_power
from pisa_capc.data.store.dataset import TIME
from pisa_capc.evidence.checks import Checked
from pisa_capc.evidence.checks.antennas import recording_snr_db
from pisa_capc.evidence.checks.base import Evidence
from pisa_capc.evidence.checks.naming import NamingScore, PlaceNaming
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, Picture, canvas, mark_chance

MOST_DELAY = 16  # samples
INTERPOLATION = 4  # points per sample of the delay axis
FRAMES_PER_RECORDING = 8  # enough for a mean over a set of some hundred recordings


def dataset_picture(folder: str | Path, path: str | Path) -> None:
    """Draw a dataset; the suffix of `path` chooses the format."""
    frames = load(folder)
    with canvas(path, PAGE_INCHES, 4.6) as figure:
        axes = figure.subplots(2, 2)
        first = frames.select([0])
        name = "/".join(group_name(frames, 0))
        if frames.domain == TIME:
            _draw_frame(axes[0, 0], first, name)
            _draw_spectrum(axes[0, 1], first)
        else:
            _draw_channel(axes[0, 0], axes[0, 1], first, name)

        recordings = groups_of(frames)
        environment, _, longest = group_name(frames, int(max(recordings, key=len)[0]))
        chosen = [g for g in recordings if group_name(frames, int(g[0]))[::2] == (environment, longest)]
        _draw_cfo(
            axes[1, 0],
            {frames.devices[frames.device[g[0]]]: frames.select(g).cfo_hz for g in chosen},
            f"{environment}/{longest}",
        )

        some = frames.select(np.sort(np.concatenate([g[:FRAMES_PER_RECORDING] for g in recordings])))
        if frames.domain == TIME:
            _draw_profiles(axes[1, 1], *delay_profiles(some))
        else:
            _draw_channels(axes[1, 1], some)


def delay_profiles(frames: UnlabelledFrames) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Delays (D,) in seconds and, per capture, the mean power (D,) in dB of the channel's autocorrelation.

    With Y(f) the spectrum of a frame and S(f) the mean power spectrum of all frames, |Y|²/S keeps the channel's |H|²
    and loses the waveform, which need not be known. Its inverse transform is r(τ) = Σ_t h(t) h*(t + τ), whose mean
    power over frames falls off with the spread of the delays: one sharp peak without echoes, a wide one with them. Bins
    25 dB under the strongest hold no signal and are left out; a Hann window over the band keeps side lobes down.
    """
    power = np.abs(np.fft.fftshift(np.fft.fft(normalise_power(frames.iq), axis=-1), axes=-1)) ** 2
    mean = power.mean(axis=(0, 1))
    used = mean > 0.003 * mean.max()
    low, high = np.flatnonzero(used)[[0, -1]]
    window = np.zeros(len(mean))
    window[low : high + 1] = np.hanning(high - low + 3)[1:-1]
    ratio = window * power / np.where(used, mean, np.inf)
    echo = np.abs(np.fft.ifft(ratio, n=INTERPOLATION * len(mean), axis=-1)) ** 2
    length = INTERPOLATION * min(MOST_DELAY, len(mean) // 2)
    delay_s = np.arange(length) / (INTERPOLATION * frames.sample_rate_hz)
    profiles = {}
    for i, name in enumerate(frames.captures):
        rows = frames.capture == i
        if rows.any():
            r = echo[rows].mean(axis=(0, 1))[:length]
            profiles[name] = 10 * np.log10(np.maximum(r / r[0], 1e-12))
    return delay_s, profiles


def _draw_frame(axes: Axes, frame: UnlabelledFrames, name: str) -> None:
    iq = normalise_power(frame.iq)[0, 0]
    time_us = np.arange(len(iq)) / frame.sample_rate_hz * 1e6
    axes.plot(time_us, iq.real, color=COLOURS[0], linewidth=0.7, label="I")
    axes.plot(time_us, iq.imag, color=COLOURS[1], linewidth=0.7, label="Q")
    axes.set_title(f"First frame of {name}, antenna 0", loc="left")
    axes.set(xlabel="time (µs)", ylabel="amplitude (unit mean power)")
    axes.margins(x=0)
    _legend_above(axes)


def _draw_spectrum(axes: Axes, frame: UnlabelledFrames) -> None:
    iq = normalise_power(frame.iq)[0]
    spectrum = np.fft.fftshift(np.abs(np.fft.fft(iq, axis=-1)) ** 2, axes=-1)
    level = 10 * np.log10(np.maximum(spectrum / spectrum.max(), 1e-8))
    frequency_mhz = np.fft.fftshift(np.fft.fftfreq(iq.shape[-1], 1 / frame.sample_rate_hz)) / 1e6
    for a in range(min(len(iq), len(COLOURS))):
        axes.plot(frequency_mhz, level[a], color=COLOURS[a], linewidth=0.6, label=str(a))
    axes.set_title("Its spectrum", loc="left")
    axes.set(xlabel="frequency from carrier (MHz)", ylabel="power (dB)", ylim=(-60, 3))
    axes.margins(x=0)
    _legend_above(axes)


def _draw_channel(level: Axes, phase: Axes, frame: UnlabelledFrames, name: str) -> None:
    """|H| and ∠H of the antennas of a frame of subcarriers."""
    channel = normalise_power(frame.iq)[0]
    for a in range(min(len(channel), len(COLOURS))):
        level.plot(_level_db(channel[a]), color=COLOURS[a], linewidth=0.8, label=str(a))
        phase.plot(np.unwrap(np.angle(channel[a])), color=COLOURS[a], linewidth=0.8, label=str(a))
    level.set_title(f"First frame of {name}", loc="left")
    level.set(xlabel="subcarrier, counted from the lowest", ylabel="level (dB)")
    phase.set_title("Its phase", loc="left")
    phase.set(xlabel="subcarrier, counted from the lowest", ylabel="phase (rad)")
    for axes in (level, phase):
        axes.margins(x=0)
        _legend_above(axes)


def _draw_channels(axes: Axes, frames: UnlabelledFrames) -> None:
    power = np.abs(normalise_power(frames.iq)) ** 2
    for i, name in enumerate(frames.captures):
        if (rows := frames.capture == i).any():
            mean = np.sqrt(power[rows].mean(axis=(0, 1)))
            axes.plot(_level_db(mean), color=COLOURS[i % len(COLOURS)], linewidth=1, label=name)
    axes.set_title("Mean power by capture", loc="left")
    axes.set(xlabel="subcarrier, counted from the lowest", ylabel="level (dB)")
    axes.margins(x=0)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _level_db(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.asarray(20 * np.log10(np.maximum(np.abs(values), 1e-4)))


def _draw_cfo(axes: Axes, traces: dict[str, NDArray[np.float64] | None], name: str) -> None:
    axes.set_title(f"CFO in {name}, mean of antennas", loc="left")
    axes.set(xlabel="frame", ylabel="CFO (kHz)")
    styles = ("-", "--", ":")
    for i, (device, cfo_hz) in enumerate(traces.items()):
        if cfo_hz is None:
            axes.text(0.5, 0.5, "no CFO was recorded", ha="center", va="center", transform=axes.transAxes)
            return
        colour, style = COLOURS[i % len(COLOURS)], styles[i // len(COLOURS) % len(styles)]
        axes.plot(cfo_hz.mean(axis=1) / 1e3, style, color=colour, linewidth=0.7, label=device)
    axes.margins(x=0)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _draw_profiles(axes: Axes, delay_s: NDArray[np.float64], profiles: dict[str, NDArray[np.float64]]) -> None:
    for i, (name, level) in enumerate(profiles.items()):
        axes.plot(delay_s * 1e9, level, color=COLOURS[i % len(COLOURS)], linewidth=1, label=name)
    axes.set_title("Power delay by capture", loc="left")
    axes.set(xlabel="delay between paths (ns)", ylabel="channel autocorrelation (dB)")
    axes.margins(x=0)
    axes.legend(loc="upper right")


def _legend_above(axes: Axes) -> None:
    """A legend in one line, right of the title, where it covers no curve."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(COLOURS), handlelength=1.2)


MOST_NAMES = 30  # that are legible below an axis
QUESTIONS = {"later": "later in the recording", "next": "one frame later", "elsewhere": "in other captures"}


def check_picture(checked: Checked, path: Path) -> Picture:
    """Draw it; the suffix of `path` chooses the format."""
    evidence = checked.evidence
    with canvas(path, PAGE_INCHES, 4.6) as figure:
        axes = figure.subplots(2, 2)
        _draw_naming(axes[0, 0], "Devices named by channels alone", evidence.room)
        _draw_naming(axes[0, 1], "Devices named by the recorded CFO alone", evidence.recorded_cfo)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        _draw_snr(axes[1, 0], evidence)
        _draw_antennas(axes[1, 1], evidence)
    caption = (
        "Check of a dataset. Above: balanced accuracy of the nearest mean by one quantity alone, in every environment "
        "and capture, with 95 % intervals; the dotted line is chance. Channels that name devices later in their "
        "recording, and not in other captures, are the room. Below: SNR of each recording and power of its antennas."
    )
    return Picture(path, caption)


def _draw_naming(axes: Axes, title: str, places: list[PlaceNaming] | None) -> None:
    axes.set_title(title, loc="left")
    axes.set(ylabel="balanced accuracy", ylim=(0, 1.02))
    if not places:
        axes.text(0.5, 0.5, "cannot be told", ha="center", va="center", transform=axes.transAxes)
        return
    for i, (question, label) in enumerate(QUESTIONS.items()):
        told: list[tuple[int, NamingScore]] = [
            (x, own) for x, place in enumerate(places) if (own := getattr(place, question)) is not None
        ]
        if told:
            at = [x + 0.27 * (i - 1) for x, _ in told]
            height = [own.accuracy for _, own in told]
            ends = np.abs([[own.accuracy - own.low, own.high - own.accuracy] for _, own in told]).T
            axes.bar(at, height, 0.25, color=COLOURS[i], label=label, yerr=ends, error_kw={"lw": 0.6})
    chance = [own.chance for place in places if (own := place.later or place.next or place.elsewhere) is not None]
    mark_chance(axes, float(np.mean(chance)), upright=True)
    _name_places(axes, [place.name for place in places])


def _draw_snr(axes: Axes, evidence: Evidence) -> None:
    axes.set_title("SNR of each recording", loc="left")
    level_db = recording_snr_db(evidence)
    if level_db is None:
        axes.text(0.5, 0.5, "no preamble to measure it by", ha="center", va="center", transform=axes.transAxes)
        return
    place = evidence.found.frames.capture_key
    names = sorted({str(name) for name in place})
    at = [names.index(str(place[own[0]])) for own in evidence.by_recording.values()]
    axes.plot(at, list(level_db.values()), "o", color=COLOURS[0], markersize=2.5, alpha=0.6)
    axes.set_ylabel("dB")
    _name_places(axes, names)


def _draw_antennas(axes: Axes, evidence: Evidence) -> None:
    """Each recording a line: antennas that hear nothing stand out below."""
    axes.set_title("Power of each antenna", loc="left")
    for own in evidence.by_recording.values():
        power = np.median(evidence.found.power[own], axis=0)
        level_db = 10 * np.log10(np.maximum(power / power.max(), 1e-8))
        axes.plot(np.arange(len(power)), level_db, "o-", color=COLOURS[0], linewidth=0.4, markersize=2, alpha=0.3)
    axes.set(xlabel="antenna", ylabel="dB of the loudest")
    axes.set_xticks(range(evidence.frames.antennas))
    axes.set_ylim(top=1, bottom=min(axes.get_ylim()[0], -10))


def _name_places(axes: Axes, names: list[str]) -> None:
    step = -(-len(names) // MOST_NAMES)
    axes.set_xticks(range(0, len(names), step), names[::step], rotation=90 if len(names) > 6 else 0)
    axes.set_xlim(-0.6, len(names) - 0.4)
