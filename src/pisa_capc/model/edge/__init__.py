"""Models that run where this package does not: ONNX files, and the same files at work in here."""

from pisa_capc.model.edge.engine import Session, on_onnx
from pisa_capc.model.edge.export import Exported, export_model

__all__ = ["Exported", "Session", "export_model", "on_onnx"]
