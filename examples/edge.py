"""Who sent these frames? With onnxruntime and NumPy alone; nothing of pisa-capc has to be there.

    pisa export-model run --out model.onnx                        # once, where the model was trained
    python edge.py model.onnx frames.npy                          # wherever it is to run

frames.npy: complex64 (frames, antennas, samples) that begin where the frame begins, at the model's sample rate, as
received: neither power nor phase has to be anything.
"""

import json
import sys

import numpy as np
import onnxruntime

BLOCK = 16  # frames at a time: what the layers pass on stays in the cache


def main(model: str, file: str) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3  # else it warns that inputs may be left out
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    about = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    frames = np.load(file, mmap_mode="r", allow_pickle=False)
    antennas, samples = session.get_inputs()[0].shape[1:3]
    if frames.dtype != np.complex64 or frames.ndim != 3 or frames.shape[1] != antennas or frames.shape[2] < samples:
        sys.exit(f"{file}: {frames.dtype} {frames.shape}; expected complex64 (frames, {antennas}, {samples} or more).")
    for start in range(0, len(frames), BLOCK):
        iq = np.ascontiguousarray(frames[start : start + BLOCK, :, :samples])
        # Besides iq: present (frames, antennas) and descriptor (frames, 4), where they are known.
        [logits] = session.run(["logits"], {"iq": iq.view(np.float32).reshape(*iq.shape, 2)})
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        probability = weight / weight.sum(axis=1, keepdims=True)
        for number, row in enumerate(probability, start):  # NaN: a frame with no antenna left, or with NaN in it
            best = int(row.argmax())
            print(number, about["devices"][best], f"{row[best]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
