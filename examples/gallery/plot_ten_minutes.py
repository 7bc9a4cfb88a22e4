"""
From your receiver to a name in ten minutes
===========================================

Sensors for doors, rain and temperature send a few milliseconds of on-off keying on 433.92 MHz, each with an encoder of its
own. No waveform is known, and no decoder is needed. This page goes the whole way as you would type it: raw samples of a
receiver, bursts, a dataset, a model, names, a live listener, and a new sensor. The samples are simulated here; for
your own, record each sensor alone for a few seconds, with rtl_433, GNU Radio, or::

    rtl_sdr -f 433920000 -s 250000 -n 1250000 captures/kitchen/door.cu8
"""

# %%
# What the receiver stores
# ------------------------
# Bytes of I and Q, as all RTL-SDR programs write them. A sensor pulls its oscillator by a few hundred hertz during each
# pulse, its clock is a little off, and its frequency moves with temperature. A message is 24 random bits: after each
# pulse of about 0.2 ms a gap that is short or long.

import contextlib
import csv
import io
import json
import os
import shlex
import sys
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np

from pisa_capc import load
from pisa_capc.cli import main
from pisa_capc.signal.measurement.keyed import KeyedEstimator

os.environ["COLUMNS"] = "110"
RATE_HZ, EVERY = 250e3, 10_000
folder = Path(mkdtemp())
rng = np.random.default_rng(7)
# Offset and what it moves by between places (Hz), chirp over a pulse (Hz), clock (parts per thousand).
SENSORS = {
    "door": (8100, 60, 900, 4.0),
    "rain": (-3400, 60, 300, -3.0),
    "window": (5200, 60, -400, 1.0),
    "attic": (5500, 60, 1400, -6.0),
    "gate": (2100, 60, 700, 7.0),
}


def message(name: str, moved_hz: float) -> np.ndarray:
    """One message of a sensor."""
    offset_hz, _, chirp_hz, clock = SENSORS[name]
    unit = 50 * (1 + clock / 1e3)  # samples of a pulse
    gaps = rng.choice([1.5, 3.0], 24)
    starts = np.concatenate([[0], np.cumsum(unit * (1 + gaps))])
    n = np.arange(int(starts[-1] + unit + 1))
    which = np.searchsorted(starts, n, side="right") - 1
    within = (n - starts[which]) / unit
    pulled = chirp_hz * (within - 0.5)
    phase = (
        2
        * np.pi
        * np.cumsum(offset_hz + moved_hz + pulled + rng.normal(scale=20, size=len(n)))
        / RATE_HZ
    )
    return np.where(within < 1, np.exp(1j * phase), 0)


def record(path: Path, names: list[str], snr_db: float = 22.0) -> None:
    """A message of each of the sensors, one after the other, as bytes of an RTL-SDR."""
    air = rng.normal(scale=0.02, size=(EVERY * len(names) + EVERY, 2)) @ [1, 1j]
    moved = {name: rng.normal(scale=SENSORS[name][1]) for name in SENSORS}
    for number, name in enumerate(names):
        sent = 0.02 * np.sqrt(2) * 10 ** (snr_db / 20) * message(name, moved[name])
        air[EVERY * number + 3000 :][: len(sent)] += sent * np.exp(
            2j * np.pi * rng.random()
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    np.round(127.5 + 127.5 * air.view(np.float64)).clip(0, 255).astype(np.uint8).tofile(
        path
    )


for place in ("kitchen", "cellar", "shed", "garden"):
    for name in ("door", "rain", "window", "attic"):
        record(
            folder / "captures" / place / f"{name}.cu8",
            [name] * 20,
            snr_db=rng.uniform(16, 26),
        )
order = rng.permutation(["door", "rain", "window", "attic", "gate"] * 6).tolist()
record(folder / "evening.cu8", order)
record(folder / "gate.cu8", ["gate"] * 20)


def pisa(line: str, lines: int = 40) -> str:
    """Run a command as you would type it, and show what it says."""
    said, out = io.StringIO(), io.StringIO()
    sys.argv = ["pisa", *shlex.split(line)]
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),  # as every command ends
    ):
        main()
    shown = (said.getvalue() + out.getvalue()).rstrip().splitlines()
    more = ["…"] if len(shown) > lines else []
    print(f"$ pisa {line}", *shown[:lines], *more, sep="\n")
    return out.getvalue()


# %%
# Is there anything?
# ------------------
# Bursts are found by their energy over a noise floor that is tracked. ``gap`` says how long a silence may be inside of
# one message, ``max`` how long a message may be.

BURST = "--waveform burst:gap=2e-3,max=0.05"
RAW = "--sample-rate 250e3 --carrier 433.92e6"
_ = pisa(f"detect captures/kitchen/door.cu8 {RAW} {BURST}", 16)

# %%
# A dataset
# ---------
# One command for the whole folder; the paths say where a recording was made and which sensor it is of.

_ = pisa(
    f'import iq captures --out sensors {RAW} {BURST} --pattern "{{environment}}/{{device}}.cu8"'
)

# %%
# A model
# -------
# The frames are on-off keyed, so the closed form is chosen: carrier offset, chirp and timing of the pulses, each with its
# error bar, and a Gaussian for each sensor. It learns from three places. The fourth is the test.

_ = pisa("train sensors --source kitchen,cellar,shed --target garden --out run")
_ = pisa("evaluate run sensors --target garden", 14)

# %%
# Names
# -----
# A recording in which all of them send in turn, and one sensor that the model has never heard.

_ = pisa(f"identify run evening.cu8 {RAW} {BURST} --out who.csv")

# %%
# What was decided of each burst:

rows = list(csv.DictReader((folder / "who.csv").open()))
right = sum(
    (row["device"] or "gate") == order[int(row["start"]) // EVERY] for row in rows
)
print(f"{right} of {len(rows)} right, the stranger among them")

x = np.fromfile(folder / "evening.cu8", np.uint8).astype(np.float32) / 127.5 - 1
x = x.view(np.complex64)[:100_000]
colours = dict(
    zip(
        ("door", "rain", "window", "attic", "gate", ""),
        [*plt.cm.tab10.colors[:5], "0.4"],
        strict=True,
    )
)
figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained")
above.specgram(x, NFFT=256, Fs=RATE_HZ / 1e3, noverlap=128, cmap="Greys", vmin=-75)
above.set(
    ylim=(-20, 20),
    xlabel="time (ms)",
    ylabel="frequency (kHz)",
    title="evening.cu8, the first ten messages",
)
for row in rows:
    at_ms = int(row["start"]) / RATE_HZ * 1e3
    if at_ms < 400:
        name = row["device"]
        box = {"facecolor": "white", "edgecolor": colours[name], "pad": 2}
        above.text(at_ms, 16, name or "unknown", color=colours[name], size=9, bbox=box)
below.set(
    xlabel="carrier offset (kHz)",
    ylabel="chirp over a pulse (Hz)",
    title="what the model goes by, of each burst",
)

frames = load(folder / "sensors")
found = KeyedEstimator(RATE_HZ).measure(frames.iq)
for number, name in enumerate(frames.devices):
    own = frames.device == number
    below.errorbar(
        found.value[own, 0] / 1e3,
        found.value[own, 1],
        np.sqrt(found.covariance[own, 1, 1]),
        fmt=".",
        ms=4,
        lw=0.5,
        color=colours[name],
        label=name,
    )
below.legend(ncols=4)
plt.show()

# %%
# Live
# ----
# ``pisa listen`` writes a line of JSON for every burst as it is received, and ``pisa serve`` shows them on a web page. A
# receiver is ``rtl_tcp:127.0.0.1:1234`` (start ``rtl_tcp -f 433920000 -s 250000``), ``soapy:driver=rtlsdr``, or a pipe. Here
# a file stands for it.

LISTEN = f"listen file:evening.cu8 --format cu8 {RAW} {BURST}"
_ = pisa(f"{LISTEN} --run run", 5)

# %%
# A new sensor
# ------------
# Twenty of its messages are enough, and nothing is trained again.

_ = pisa(f"enrol run --device-name gate gate.cu8 {RAW} {BURST} --out run-2")

heard = pisa(f"{LISTEN} --run run-2", 4)
events = [json.loads(line) for line in heard.splitlines()]
decisions = [event for event in events if event["event"] == "decision"]
right = sum(event["device"] == order[event["start"] // EVERY] for event in decisions)
print(f"{right} of {len(decisions)} right, with the new one")
