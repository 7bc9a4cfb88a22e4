"""Foreign formats: one module each that reads and writes recordings of other programs."""

from pisa_capc.formats.transfer import ExportOptions, ImportOptions, export_dataset, import_dataset

__all__ = ["ExportOptions", "ImportOptions", "export_dataset", "import_dataset"]
