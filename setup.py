"""What pyproject.toml cannot say: files from beside src that a wheel takes along, and the page of the package index.

The protocols and the scene of the tour stand where people edit them; an editable installation finds them there. The
page is README with links that lead somewhere: to the repository, where CITATION.cff names one, and else none.
"""

import re
from pathlib import Path
from shutil import copy

from setuptools import setup
from setuptools.command.build_py import build_py

TAKEN = {"protocols": "protocols/*.yaml", "examples": "examples/demo_scene.yaml"}
HERE = Path(__file__).parent


class BuildWithFiles(build_py):
    """Also copies `TAKEN` into the package."""

    def run(self) -> None:
        super().run()
        for name, pattern in TAKEN.items() if not self.editable_mode else ():
            folder = Path(self.build_lib) / "pisa_capc" / name
            folder.mkdir(parents=True, exist_ok=True)
            for path in HERE.glob(pattern):
                copy(path, folder)


def described() -> str:
    """README, whose relative links are absolute or, without an address of the repository, words."""
    found = re.search(r"^repository-code: *(\S+)", (HERE / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    text = (HERE / "README.md").read_text(encoding="utf-8")
    relative = r"\[([^]]*)\]\((?!https?:|#|mailto:)([^)]*)\)"
    if found is None:
        return re.sub(relative, r"\1", re.sub(rf"!{relative}\n?", "", text))
    base = found.group(1).strip("\"'").rstrip("/")
    return re.sub(relative, rf"[\1]({base}/blob/main/\2)", re.sub(rf"!{relative}", rf"![\1]({base}/raw/main/\2)", text))


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildWithFiles},
        long_description=described(),
        long_description_content_type="text/markdown",
    )
