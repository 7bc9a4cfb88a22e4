"""Is a set fit to be trained on? One function per check, in files by what they look at; `run` puts them together."""

from pisa_capc.check import antennas, copies, frequency, layout, levels, room  # noqa: F401  (each registers its checks)
from pisa_capc.check.base import CHECKS, Finding, Verdict, register
from pisa_capc.check.run import Checked, check, check_frames

__all__ = ["CHECKS", "Checked", "Finding", "Verdict", "check", "check_frames", "register"]
