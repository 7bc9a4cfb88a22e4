"""LoRa upchirps are those of the literature, sample for sample."""

from __future__ import annotations

import numpy as np
from scipy.signal import chirp

from pisa_capc.signal.waveforms import lora


def test_upchirps_agree_with_an_independent_chirp_and_join_without_a_phase_step() -> None:
    x = lora.upchirps()
    assert x.shape == (8192,)
    t = np.arange(1024) / 1e6
    reference = chirp(t, -62.5e3, 1024e-6, 62.5e3, complex=True)
    np.testing.assert_allclose(x[:1024], reference, atol=1e-10)
    np.testing.assert_allclose(x[1024:2048], x[:1024])
    # Across a symbol's end the frequency jumps but the phase continues: one sample of the last instantaneous frequency.
    assert abs(np.angle(x[1024] * np.conj(x[1023]))) < 2 * np.pi * 0.0626
