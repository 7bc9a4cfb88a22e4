"""Is a set fit to be trained on? One function per check, in files by subject; `base` runs them."""

# Each import registers its checks; in the order in which they are told.
# isort: off
from pisa_capc.evidence.checks import room  # noqa: F401
from pisa_capc.evidence.checks import layout  # noqa: F401
from pisa_capc.evidence.checks import antennas  # noqa: F401
# isort: on

from pisa_capc.core.moved import renamed
from pisa_capc.evidence.checks.base import CHECKS, Checked, Finding, Verdict, check, check_frames, register_check

__all__ = ["CHECKS", "Checked", "Finding", "Verdict", "check", "check_frames", "register_check"]

register = renamed(__name__, "register", register_check)
