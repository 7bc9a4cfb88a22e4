"""
A classifier of your own, and U-CAPC
====================================

The calibration needs no network of ours: embeddings, logits and the names of captures are enough. Here the classifier
is scikit-learn's logistic regression on a few numbers that people measure by hand.
"""

# %%
# Frames, and features measured by hand
# -------------------------------------
# The long training symbol of an 802.11 preamble has no carrier at frequency zero and is known on the 52 others. What an
# antenna receives there is the room, H; what it receives at zero is the radio's carrier leakage; and what H cannot
# explain between a subcarrier and its mirror image is the radio's I/Q imbalance.

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pisa_capc
from pisa_capc.signal.waveforms import WAVEFORMS

folder = Path(mkdtemp())
frames = pisa_capc.simulate(
    "wifi",
    folder / "wifi",
    scene="radios.yaml",
    scale=0.06,
    workers=1,
    show_progress=False,
)
part = pisa_capc.split(frames, source=["E2", "E3"], target="E1", seed=2026)

known = np.fft.fft(
    WAVEFORMS["wifi"].preamble()[192:256]
)  # the first long training symbol
used = np.flatnonzero(np.abs(known) > 1e-6)


def measured(iq: np.ndarray) -> np.ndarray:
    """Leakage and image of every frame, averaged over antennas: (frames, antennas, samples) → (frames, 6)."""
    received = np.fft.fft((iq[..., 192:256] + iq[..., 256:320]) / 2)
    ratio = received[..., used] / known[used]  # the channel, but for the image
    smooth = np.fft.ifft(ratio)
    smooth[..., 8:-8] = 0  # echoes are short
    channel = np.fft.fft(smooth)
    power = np.abs(channel).mean(axis=-1)
    middle = channel[..., [0, -1]].mean(axis=-1)
    leakage = received[..., 0] / middle
    image = (
        (ratio - channel) / channel * np.sign(known[used] * known[-used]).real
    ).mean(axis=-1)
    parts = [
        leakage.real,
        leakage.imag,
        image.real,
        image.imag,
        np.abs(leakage),
        np.abs(image),
    ]
    weight = power / power.sum(axis=-1, keepdims=True)
    return np.stack([(weight * values).sum(axis=-1) for values in parts], axis=-1)


# %%
# Train on the source, decide on the target
# -----------------------------------------
# The classifier is trained where everybody would begin, at positions with a line of sight. The target has others, too.
# ``logits`` are what it adds up before its softmax; the embedding is what it sees.

train = part.train.where(capture=["L1", "L2"])
classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
classifier.fit(measured(train.iq), train.device)
embedding = classifier[0].transform(measured(part.target.iq))
logits = classifier[1].decision_function(embedding)

# %%
# Calibrate
# ---------
# ``capture`` groups the frames: one position of the receiver, one recording session, one batch. The same from files is
# ``pisa calibrate scores.npz --out calibrated.npz``.

calibrated = pisa_capc.UCAPC().calibrate(embedding, logits, part.target.capture_key)
for name, outputs in {"direct": logits, "after U-CAPC": calibrated.probability}.items():
    print(
        f"{name:12} Macro-F1 {part.evaluator.score(outputs).macro_f1:.3f}; chance is {1 / len(frames.devices):.3f}"
    )

# %%
# What changed in each capture: how many decisions, and how evenly the frames lie over the classes.

from pisa_capc.evidence.figures.calibration import plot_overview

picture = folder / "overview.png"
plot_overview(calibrated, picture)

# %%
# One capture in detail, on the two principal axes of the embeddings. Rings are frames whose decision changed, discs the
# prototypes of the capture.

from pisa_capc.evidence.figures.calibration import plot_capture

picture = folder / "capture.png"
plot_capture(calibrated, picture, "E1/L3")

# %%
# **Know its limit.** The published calibration expects every device about equally often in a capture. Where one device
# sends nearly all frames it gives part of them away:

rows = np.flatnonzero(part.evaluator.labels_for_drawing() == 0)
lonely = pisa_capc.UCAPC().calibrate(
    embedding[rows], logits[rows], part.target.capture_key[rows]
)
direct = (logits[rows].argmax(axis=1) == 0).mean()
print(
    f"captures of one device: {direct:.2f} right without calibration, {(lonely.prediction == 0).mean():.2f} with it"
)
# sphinx_gallery_thumbnail_number = 1

# %%
# :doc:`Careful <../calibration>`, the usual calibration, is for deployments in which that may happen.
