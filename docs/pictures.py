"""Pictures of gallery scripts that the package has written itself: the file that their variable `picture` names."""

from __future__ import annotations

from pathlib import Path
from shutil import copy
from typing import Any

from sphinx_gallery.scrapers import figure_rst


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Take the picture after the block that has set `picture`, once."""
    picture = block_vars["example_globals"].pop("picture", None)
    if picture is None or not Path(picture).exists():
        return ""
    path = next(block_vars["image_path_iterator"])
    copy(picture, path)
    return str(figure_rst([path], gallery_conf["src_dir"]))
