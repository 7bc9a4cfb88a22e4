"""802.11 frames in a stream: a fast screen for the L-STF, then the whole preamble where the screen says so.

chunk        samples that are held, and a stretch of them, decoded or not
background   what is between the frames, where it is louder, and the filter against carriers and DC
screen       where an L-STF may be
preamble     first sample, frequency offsets, signal-to-noise ratios, how well it fits
detector     a stream in chunks, and the frames that are still coming in
headers      whom they claim to be from
"""

from pisa_capc.signal.detection.wifi.detector import WifiDetector
from pisa_capc.signal.detection.wifi.headers import with_headers

__all__ = ["WifiDetector", "with_headers"]
