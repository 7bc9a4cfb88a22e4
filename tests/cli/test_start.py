"""What is not needed is not imported: the package and its help are there at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "scipy", "matplotlib", "h5py", "sklearn", "numpy")
HELP = "sys.argv = ['pisa', '--help']\ntry:\n    cli.main()\nexcept SystemExit as ended:\n    assert not ended.code"


@pytest.mark.parametrize("code", ["import pisa_capc", f"from pisa_capc import cli\n{HELP}"], ids=["import", "help"])
def test_nothing_heavy_is_imported(code: str) -> None:
    program = f"import sys\n{code}\nprint(sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_has_the_function_that_simulates_whatever_was_imported_before() -> None:
    program = (
        "from pisa_capc.signal.simulation import scene\nimport pisa_capc\nprint(pisa_capc.simulate.__name__, scene)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("simulate <module ")
