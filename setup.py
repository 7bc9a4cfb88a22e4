"""The protocols stand beside src, where people edit them; a wheel takes them along. All else is in pyproject.toml."""

from pathlib import Path
from shutil import copy

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithProtocols(build_py):
    """Also copies the protocols into the package; an editable installation finds those beside src."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "pisa_capc" / "protocols"
            folder.mkdir(parents=True, exist_ok=True)
            for path in Path("protocols").glob("*.yaml"):
                copy(path, folder)


setup(cmdclass={"build_py": BuildWithProtocols})
