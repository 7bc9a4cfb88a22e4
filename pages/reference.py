"""The pages of the site that are made from the code: commands, settings of protocols and scenes, files, the API."""

from __future__ import annotations

from pathlib import Path

from pages import api, commands, file_bytes, schemas

PAGES = {
    "commands.md": commands.page,
    "protocol.md": schemas.protocol_page,
    "scene.md": schemas.scene_page,
    "bytes.md": file_bytes.page,
    "api.rst": api.page,
}


def write(folder: Path) -> None:
    """Every page, where it is not there yet as it should be: what has not changed is not read again."""
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
