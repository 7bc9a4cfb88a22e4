"""What a report of a dataset says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pisa_capc.core.provenance import machine
from pisa_capc.data.store.dataset import Dataset, describe
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.checks import check
from pisa_capc.evidence.figures.check import check_picture
from pisa_capc.evidence.figures.dataset import dataset_picture
from pisa_capc.evidence.figures.style import Picture
from pisa_capc.evidence.reports.page import Page


def report_of_dataset(folder: Path) -> Page:
    """A page about frames: whether they are fit to be trained on, what they look like, where they are from."""
    dataset, checked = Dataset.read(folder), check(folder)
    page = Page(f"Dataset {folder.resolve().name}")
    page.found(checked.summary)
    page.text(f"{describe(dataset)}. {dataset.geometry.antennas} antennas, {dataset.samples} samples of each frame.")
    page.section("Is it fit to be trained on?")
    rows = [[name, own.verdict, own.found, own.advice] for name, own in checked.findings.items()]
    page.table("Findings", ["check", "verdict", "found", "what to do"], rows, words=True)
    with TemporaryDirectory() as scratch:
        own = check_picture(checked, Path(scratch) / "check.svg")
        page.picture(own.caption, own.path)
        page.section("What it looks like")
        frames = Picture(Path(scratch) / "frames.png", "A frame, its spectrum, CFO over time, echoes.")
        dataset_picture(folder, frames.path)
        page.picture(frames.caption, frames.path)
    page.section("Provenance")
    page.values("The dataset", {"fingerprint": fingerprint(folder), **dataset.provenance})
    page.values("Where this report was made", machine())
    return page
