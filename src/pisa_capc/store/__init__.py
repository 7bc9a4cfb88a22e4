"""Datasets on disk: the native store, and one module per foreign format."""

from pisa_capc.store.native import CaptureSpec, Dataset, load, write_dataset

__all__ = ["CaptureSpec", "Dataset", "load", "write_dataset"]
