"""What a device sends in a capture: base waveform through its hardware, with the timing error of each frame."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pisa_capc.signal.simulation.channel import filter_frames
from pisa_capc.signal.simulation.hardware import DeviceProfile, transmit
from pisa_capc.signal.simulation.numerics import delay_kernel, tabulated_kernel
from pisa_capc.signal.simulation.scene import Signal
from pisa_capc.signal.waveforms import WAVEFORMS, Draw

TIMING_HALF_WIDTH = 16
LARGEST_JITTER_SAMPLES = 1.0  # what the timing filter shifts without losing its tails


class SimulatedSender:
    """What a device sends in a capture, frame by frame.

    The head is the same in every frame, so its passage through the hardware is computed once; frames that reach into
    the payload are all different. A timing error delays the waveform before the channel: both are linear and
    time invariant, so the order is free, and what it does to the residual rotation is a constant phase, which the
    random receiver phase already covers.
    """

    def __init__(self, signal: Signal, profile: DeviceProfile, channel_taps: int, draw: Draw) -> None:
        """draw: generators of what differs from frame to frame, see `Waveform.frames`."""
        self.waveform, self.profile, self.draw = WAVEFORMS[signal.kind], profile, draw
        # Filters read ahead by their half width, and back over silence by the length of the channel.
        self.length = signal.samples + signal.channel_half_width_samples + TIMING_HALF_WIDTH
        self.silence = channel_taps - 1 - signal.channel_half_width_samples + TIMING_HALF_WIDTH
        base = self.waveform.head(self.length + TIMING_HALF_WIDTH)
        self.delayed = None if base is None else self._delayed(self._send(base))

    def frames(self, delay_samples: NDArray[np.float64]) -> NDArray[np.complex64]:
        """(f, T + L − 1) the next frames, each delayed by its timing error."""
        kernel = timing_kernel(delay_samples, self.waveform.occupied)
        if self.delayed is not None:
            return (kernel @ self.delayed).view(np.complex64)
        base = self.waveform.frames(len(kernel), self.draw)
        missing = max(0, self.length + TIMING_HALF_WIDTH - base.shape[1])
        sent = self._send(np.pad(base, ((0, 0), (0, missing)))[:, : self.length + TIMING_HALF_WIDTH])
        return delayed(sent, kernel)

    @staticmethod
    def _delayed(sent: NDArray[np.complex64]) -> NDArray[np.float32]:
        """(2W + 1, 2 (T + L − 1)) the waveform at each tap of the timing filter, real and imaginary parts in turn."""
        windows = sliding_window_view(sent, sent.size - 2 * TIMING_HALF_WIDTH)[::-1]
        return np.ascontiguousarray(windows).view(np.float32)

    def _send(self, base: NDArray[np.complex128]) -> NDArray[np.complex64]:
        sent = transmit(base, self.profile, self.waveform.occupied)[..., : self.length]
        return np.concatenate([np.zeros((*sent.shape[:-1], self.silence), dtype=np.complex64), sent], axis=-1)


def timing_kernel(delay_samples: NDArray[np.float64], occupied: float) -> NDArray[np.float32]:
    """(f, 2W + 1) taps that delay each frame by its timing error, and all by W samples."""
    delay_samples = np.clip(delay_samples, -LARGEST_JITTER_SAMPLES, LARGEST_JITTER_SAMPLES)
    return delay_kernel(delay_samples, TIMING_HALF_WIDTH, 2 * TIMING_HALF_WIDTH + 1, occupied).astype(np.float32)


def delayed(sent: NDArray[np.complex64], kernel: NDArray[np.float32]) -> NDArray[np.complex64]:
    """(f, n − 2W) frames (f, n) behind their timing filters (f, 2W + 1)."""
    return filter_frames(sent, kernel[:, None].astype(np.complex64))[:, 0]


def send_once(
    base: NDArray[np.complex128], profile: DeviceProfile, delay_samples: float, occupied: float, channel_taps: int
) -> NDArray[np.complex64]:
    """(1, T + 2W + 2 (L − 1)) one whole frame (T,) between silences that are as long as filters reach.

    The transmitter is off before and after: its leakage ends with the frame. The frame's first sample is number
    W + L − 1 here, and behind the channel's L taps, which delay by their half width H, number W + H.
    """
    silence = 2 * TIMING_HALF_WIDTH + channel_taps - 1
    sent = np.pad(transmit(base[None], profile, occupied, tabulated_kernel), ((0, 0), (silence, silence)))
    return delayed(sent, timing_kernel(np.array([delay_samples]), occupied))
