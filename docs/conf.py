"""The site: `make docs` builds it into docs/_build/html, and every warning is an error."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])  # of the commands that examples run
os.chdir(ROOT)  # records and protocols are found from here

from pisa_capc import __version__  # noqa: E402

project = "PISA-CAPC"
author = "The authors of pisa-capc"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    # "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "api/*.examples"]
nitpicky = False

# Markdown, as it reads on GitHub too: headings are anchors, links to other pages and files are relative.
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"PISA-CAPC {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
