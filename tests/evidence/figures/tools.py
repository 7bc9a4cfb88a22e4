"""What is inside a picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[str]:
    """All texts of an SVG file, which must be well-formed and hold its text as text."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


def ids(path: Path, start: str) -> list[str]:
    """The marks in an SVG file that begin so."""
    return [e.attrib["id"] for e in ElementTree.parse(path).iter() if e.attrib.get("id", "").startswith(start)]


def is_pdf_with_text(path: Path) -> bool:
    """A whole PDF whose letters are fonts, not outlines of matplotlib's Type 3."""
    content = path.read_bytes()
    return content.startswith(b"%PDF") and content.rstrip().endswith(b"%%EOF") and b"/Type3" not in content
