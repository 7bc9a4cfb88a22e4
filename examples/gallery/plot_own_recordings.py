"""
Recordings of your own
======================

Frames that were cut by another program, one file for each recording, become a dataset. Here the files are MAT files of
three radios in two rooms, made for this page; yours may be MAT, SigMF, NumPy or HDF5.
"""

# %%
# Files as people have them
# -------------------------
# One file for each room, radio and position; in each an array of frames × samples × antennas under some name, and the
# frequency offsets of the frames under another.

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from scipy.io import savemat

folder = Path(mkdtemp())
rng = np.random.default_rng(1)


def recorded(radio: int, room: int, frames: int = 40) -> np.ndarray:
    """A tone through an unbalanced mixer, a room and four antennas: (frames, samples, antennas)."""
    tone = np.exp(2j * np.pi * 3 / 32 * np.arange(320))[None, :, None]
    sent = tone + 0.05 * radio * tone.conj() + 0.03 * radio
    echo = np.roll(sent, 2, axis=1) * 0.3 * np.exp(1j * room)
    gain = np.exp(2j * np.pi * rng.random((frames, 1, 4)))
    noise = rng.normal(scale=0.03, size=(frames, 320, 4, 2)) @ [1, 1j]
    return (gain * (sent + echo) + noise).astype(np.complex64)


for room in ("office", "lab"):
    for radio in range(3):
        for position in ("window", "door"):
            file = folder / "recordings" / room / f"radio{radio}" / f"{position}.mat"
            file.parent.mkdir(parents=True, exist_ok=True)
            iq = recorded(radio, room=len(room))
            savemat(
                file,
                {"frames": iq, "offset": rng.normal(1e3 * radio, 50, (len(iq), 4))},
            )
print(
    *sorted(path.relative_to(folder) for path in folder.rglob("*.mat"))[:4],
    "…",
    sep="\n",
)

# %%
# Import
# ------
# The pattern says which part of a path is the environment, the device and the capture. Arrays are recognised by their
# shape; where that is ambiguous, ``iq_key`` and ``axes`` name them. On the command line::
#
#     pisa import mat recordings --out mine --pattern "{environment}/{device}/{capture}.mat" --axes nTA

from pisa_capc.signal.formats import ImportOptions, import_dataset

import_dataset(
    "mat",
    folder / "recordings",
    folder / "mine",
    ImportOptions(
        pattern="{environment}/{device}/{capture}.mat",
        iq_key="frames",
        cfo_key="offset",
        axes="nTA",
        sample_rate_hz=20e6,
        carrier_hz=5.825e9,
    ),
)

# %%
# What there is now
# -----------------
# A dataset is a folder with a description, ``dataset.json``, and one HDF5 file for each capture, whose samples carry
# digests: from now on a damaged file is refused and not read.

import pisa_capc

frames = pisa_capc.load(folder / "mine")
print(frames)
print("environments", frames.environments, "devices", frames.devices)

# %%
# Look at it before anything is trained. A wrong order of axes shows here at once: samples of one antenna are a signal,
# antennas of one sample are not.

from pisa_capc.evidence.figures.dataset import dataset_picture

picture = folder / "mine.png"
dataset_picture(folder / "mine", picture)

# %%
# Frames that are arrays already need no files: :meth:`pisa_capc.Frames.from_arrays` takes (frames, antennas, samples).

arrays = pisa_capc.Frames.from_arrays(
    recorded(1, 4).transpose(0, 2, 1),
    device=["radio1"] * 40,
    environment=["office"] * 40,
)
print(arrays)
