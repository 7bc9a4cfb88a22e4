"""
From a raw recording to identities
==================================

Nobody has cut the frames here: a receiver with four antennas has recorded a channel on which six radios send to each
other. The frames are found, their headers say whom they claim to be from, and their waveform says who they are.
"""

# %%
# A recording
# -----------
# A tenth of a second of room E1, as a SigMF pair with 16-bit samples. The command is
# ``pisa simulate wifi --recording 0.1 --environment E1 --out recordings``. D01 is away, and D03
# sends with its address.

from pathlib import Path
from tempfile import mkdtemp

import pisa_capc
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.simulation.recording import record

folder = Path(mkdtemp())
made = record(
    "wifi",
    folder / "recordings",
    0.1,
    environment="E1",
    duty=0.35,
    rates="24",
    devices="D02,D03,D04,D05,D06",
    spoof="D03:D01@0",
    scene="radios.yaml",
    workers=1,
    show_progress=False,
)
print(
    f"{made.frames} frames of {made.devices} devices, {made.spoofed} with the address of another"
)

# %%
# Find the frames
# ---------------
# The detector reads the recording block by block and knows nothing of the truth. ``pisa detect`` is the command.

from pisa_capc.signal.detection import detect

recording = open_recording(folder / "recordings" / "E1-L1-0.sigmf-meta")
found = detect(recording, "wifi")
for frame in found.frames[:4]:
    print(
        f"{1e3 * frame.time_s:8.3f} ms  {frame.header.kind:12} from {frame.header.transmitter}  "
        f"SNR {max(frame.snr_db):.0f} dB, offset {frame.cfo_hz[0] / 1e3:+.1f} kHz"
    )
print(f"found {len(found.frames)} frames")

# %%
# The first milliseconds on one antenna, and what was found in them. Frames without an address are ACKs.

from pisa_capc.evidence.figures.recording import Box, draw_spectrogram

rate_hz = recording.about.sample_rate_hz
samples = int(6e-3 * rate_hz)
boxes = [
    Box(
        frame.time_s,
        frame.time_s + (frame.samples or 320) / rate_hz,
        -8.5e6,
        8.5e6,
        frame.header.transmitter or "no address",
    )
    for frame in found.frames
    if frame.start + (frame.samples or 320) < samples
]
picture = folder / "spectrogram.png"
draw_spectrogram(recording.read(0, samples)[0], rate_hz, boxes, picture)

# %%
# Who are they?
# -------------
# A model is trained on labelled frames of the rooms E2 and E3; it has never seen E1.

frames = pisa_capc.simulate(
    "wifi",
    folder / "wifi",
    scene="radios.yaml",
    scale=0.06,
    workers=1,
    show_progress=False,
)
part = pisa_capc.split(frames, source=["E2", "E3"], target="E1", seed=2026)
[model] = pisa_capc.fit(
    pisa_capc.Run(part, seed=2026),
    method="equalised",
    encoder="cnn",
    epochs=8,
    batch=32,
    learning_rate=0.003,
    device="cpu",
    show=False,
)

# %%
# :func:`~pisa_capc.decide.identification.identify` aligns the frames, takes off their offset, embeds, calibrates and
# decides; ``pisa identify`` is the command. The recording is one capture. All senders are enrolled here, so nothing is
# set aside as unknown; and since one of the six is away, devices are not equally frequent, and nothing that assumes so
# is asked for.

from pisa_capc.decide.calibration import calibrator
from pisa_capc.decide.identification import Choices, identify

who = identify(
    model,
    [found],
    Choices(calibrator("direct")(), reject=None, equalise_antennas=True),
    device="cpu",
)
truth = [note.label for note in recording.annotations]
print(
    f"{len(who)} frames identified, {sum(a == b for a, b in zip(who.device, truth, strict=True)) / len(who):.3f} right"
)

# %%
# Rows are the addresses that frames claim, columns the devices that their waveform speaks for. The address in the
# row of D03 is that of D01.

import matplotlib.pyplot as plt
import numpy as np

addresses = sorted({address for address in who.seen.address if address is not None})
counts = np.zeros((len(addresses), len(who.devices)), dtype=int)
for address, decision in zip(who.seen.address, who.decision, strict=True):
    if address is not None:
        counts[addresses.index(address), decision] += 1
share = counts / counts.sum(axis=1, keepdims=True)

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
image = axes.imshow(share, cmap="cividis", vmin=0, vmax=1)
for row, column in np.argwhere(counts):
    ink = "black" if share[row, column] > 0.5 else "white"
    axes.text(column, row, counts[row, column], ha="center", va="center", color=ink)
axes.set_xticks(range(len(who.devices)), who.devices)
axes.set_yticks(range(len(addresses)), addresses, family="monospace")
axes.set(xlabel="device, by its waveform", ylabel="address that frames claim")
_ = figure.colorbar(image, label="share of the address's frames")

# %%
# Is it who it claims to be?
# --------------------------
# :func:`~pisa_capc.decide.identification.verify` tests every address, frame by frame, with a chance of a false alarm
# that is chosen beforehand; ``pisa verify`` is the command, and :doc:`../identify` says what the test promises.

from pisa_capc.decide.identification import verify
from pisa_capc.signal.simulation.networks import NETWORKS

enrolled = {NETWORKS["wifi"].address(device): device for device in model.devices}
for verdict in verify(who, enrolled, alpha=0.01):
    print(
        f"{verdict.address} is {verdict.device}'s: {verdict.verdict} after {verdict.after} of {verdict.frames} frames"
    )
# sphinx_gallery_thumbnail_number = 1
