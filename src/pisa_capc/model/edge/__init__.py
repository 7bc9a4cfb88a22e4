"""Models that run where this package does not: ONNX files, and the same files at work in here."""

from pisa_capc.model.edge.engine import on_onnx
from pisa_capc.model.edge.export import Exported, export_model
from pisa_capc.model.edge.session import Session

__all__ = ["Exported", "Session", "export_model", "on_onnx"]
