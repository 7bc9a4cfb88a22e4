"""Foreign formats: one module each that reads and writes files of other programs.

A format of your own is a class under `@register_format("name")` in a plugin, see `Format`.
"""

from pisa_capc.core.moved import renamed
from pisa_capc.signal.formats import csi, hdf5, iq, mat, npz, sigmf  # noqa: F401  (they register, in this order)
from pisa_capc.signal.formats.base import (
    FORMATS,
    CsiOptions,
    ExportOptions,
    Format,
    ImportOptions,
    Plan,
    Samples,
    described,
    register_format,
)
from pisa_capc.signal.formats.transfer import export_dataset, import_dataset, read_frames

__all__ = [
    "FORMATS",
    "CsiOptions",
    "ExportOptions",
    "Format",
    "ImportOptions",
    "Plan",
    "Samples",
    "described",
    "export_dataset",
    "import_dataset",
    "read_frames",
    "register_format",
]

register = renamed(__name__, "register", register_format)
