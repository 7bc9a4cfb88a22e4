"""Datasets on disk: the native store, and files that are whole or not there."""

from pisa_capc.data.store.native import CaptureSpec, Dataset, write_dataset

__all__ = ["CaptureSpec", "Dataset", "write_dataset"]
