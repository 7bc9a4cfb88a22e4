"""The site: `make docs` builds it into docs/_build/html, and every warning is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "src")]
os.environ["PYTHONPATH"] = str(ROOT / "src")  # of the processes that examples start
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a build is one process on one core
os.chdir(ROOT)  # from where records and protocols are found

import docstrings  # noqa: E402
import mathml  # noqa: E402
from pages import reference  # noqa: E402

from pisa_capc import __version__  # noqa: E402

project = "PISA-CAPC"
release = version = __version__
html_title = f"PISA-CAPC {release}"
html_show_copyright = False

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_templates", "gallery/*.py", "gallery/*.ipynb"]
templates_path = ["_templates"]

# Markdown, as it reads on GitHub too: headings are anchors, links to other pages and files are relative.
myst_enable_extensions = ["dollarmath", "deflist", "attrs_inline"]
myst_heading_anchors = 3

# Docstrings are plain text with equations in Unicode and code in single backticks.
default_role = "py:obj"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 80
autosummary_ignore_module_all = False

highlight_language = "none"  # of blocks that name none: commands, lists
smartquotes = False  # options of commands begin with two dashes
html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": "conf.in_order",
    "image_scrapers": ("matplotlib", "pictures.scrape"),
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("pisa_capc",),
    "reference_url": {"pisa_capc": None},
    "remove_config_comments": True,
    "capture_repr": (),  # what examples print is enough
    "show_memory": False,
    "write_computation_times": False,
    "copyfile_regex": r"radios\.yaml",
}
ORDER = (
    "first",
    "ten_minutes",
    "own_recordings",
    "recording",
    "own_classifier",
    "stream",
    "own_encoder",
    "own_method",
    "benchmark",
)


# Pages that were merged into others: their addresses lead on.
MOVED = {
    "safe": "calibration.html",
    "public-sets": "formats.html#public-sets",
    "simulated-recordings": "recordings.html#simulated-recordings",
    "results/index": "findings.html",
}


def in_order(file: str) -> int:
    """Examples as one would read them."""
    return ORDER.index(Path(file).stem.removeprefix("plot_"))


reference.write(HERE / "reference")


def lead_on(app, failed):  # type: ignore[no-untyped-def]
    """A page of one line at every address of `MOVED`."""
    if failed is None and app.builder.name == "html":
        for old, new in MOVED.items():
            line = f'<meta http-equiv="refresh" content="0; url={new}"><a href="{new}">This page has moved.</a>'
            (Path(app.outdir) / f"{old}.html").write_text(f"<!DOCTYPE html>{line}\n", encoding="utf-8")


def of_sklearn(app, what, name, obj, skip, options):  # type: ignore[no-untyped-def]
    """Leave out what scikit-learn adds to its estimators: its words link to its own pages."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):  # type: ignore[no-untyped-def]
    app.connect("autodoc-skip-member", of_sklearn)
    app.connect("build-finished", lead_on)
    docstrings.connect(app)
    mathml.connect(app)
