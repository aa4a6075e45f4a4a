"""The virtual environment in which the scripts run."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts import ROOT

ENVIRONMENT = ROOT / ".venv"


def enter(*extras: str) -> None:
    """Start this script again with the Python of .venv, which is made first where it is missing.

    It has the package with these extras of setup.cfg. Does nothing where that Python runs already.
    """
    if sys.prefix == str(ENVIRONMENT):
        return
    made = subprocess.run([ROOT / "scripts" / "venv", *extras], check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)
    python = str(ENVIRONMENT / "bin" / "python")
    os.execv(python, [python, *sys.argv])
