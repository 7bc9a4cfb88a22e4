"""
From a raw recording to identities
==================================

Nobody has cut the frames here: a receiver with four antennas has recorded a channel on which six radios send to each
other. The frames are found, their headers say whom they claim to be from, and their waveform says who they are.
"""

# sphinx_gallery_thumbnail_number = 1
# %%
# A recording
# -----------
# A tenth of a second of room E1, as a SigMF pair with 16-bit samples. The command is
# ``pisa simulate wifi --recording 0.1 --environment E1 --out recordings``. One radio, D03, lies about its address.

from pathlib import Path
from tempfile import mkdtemp

import pisa_capc
from pisa_capc.recordings import open_recording
from pisa_capc.simulate.recording import record

folder = Path(mkdtemp())
made = record(
    "wifi",
    folder / "recordings",
    0.1,
    environment="E1",
    duty=0.35,
    rates="24",
    spoof="D03:D01",
    scene="radios.yaml",
    workers=1,
    show_progress=False,
)
print(f"{made.frames} frames of {made.devices} devices, {made.spoofed} with the address of another")

# %%
# Find the frames
# ---------------
# The detector reads the recording block by block and knows nothing of the truth. ``pisa detect`` is the command.

from pisa_capc.detect import detect

recording = open_recording(folder / "recordings" / "E1-L1-0.sigmf-meta")
found = detect(recording, "wifi")
for frame in found.frames[:4]:
    print(f"{1e3 * frame.time_s:8.3f} ms  {frame.header.kind:12} from {frame.header.transmitter}  "
          f"SNR {max(frame.snr_db):.0f} dB, offset {frame.cfo_hz[0] / 1e3:+.1f} kHz")
print(f"found {len(found.frames)} frames")

# %%
# The first milliseconds on one antenna, and what was found in them. Frames without an address are ACKs.

from pisa_capc.figures.recording import Box, draw_spectrogram

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
# From frames to a dataset
# ------------------------
# Aligned to their first sample and without their frequency offset they are frames like any other, labelled by the
# address that they claim.

from pisa_capc.detect.dataset import Choices, write_frames

written = write_frames(folder / "found", [found], Choices(label="address", environment="E1", capture="L1"))
claimed = pisa_capc.load(folder / "found")
print(claimed)
print("left out:", written.left_out)

# %%
# Who are they?
# -------------
# The model was trained on labelled frames of the rooms E2 and E3; it has never seen E1.

import numpy as np

frames = pisa_capc.simulate("wifi", folder / "wifi", scene="radios.yaml", scale=0.06, workers=1, show_progress=False)
part = pisa_capc.split(frames, source=["E2", "E3"], target="E1", seed=2026)
[model] = pisa_capc.fit(
    pisa_capc.Run(part, seed=2026), method="equalised", encoder="cnn", epochs=8, batch=32, learning_rate=0.003, device="cpu", show=False
)
scores = pisa_capc.embed(model, claimed.unlabelled())
decided = scores.logits.argmax(axis=1)

# %%
# Rows are addresses, columns the devices that the waveform speaks for. Every address goes to one device, but for that of
# D01, which two radios use: the second one is D03.

import matplotlib.pyplot as plt

addresses = list(claimed.devices)
counts = np.zeros((len(addresses), len(model.devices)), dtype=int)
np.add.at(counts, (claimed.device, decided), 1)
share = counts / counts.sum(axis=1, keepdims=True)

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
image = axes.imshow(share, cmap="cividis", vmin=0, vmax=1)
for row, column in np.argwhere(counts):
    ink = "black" if share[row, column] > 0.5 else "white"
    axes.text(column, row, counts[row, column], ha="center", va="center", color=ink)
axes.set_xticks(range(len(model.devices)), model.devices)
axes.set_yticks(range(len(addresses)), addresses, family="monospace")
axes.set(xlabel="device, by its waveform", ylabel="address that frames claim")
_ = figure.colorbar(image, label="share of the address's frames")
