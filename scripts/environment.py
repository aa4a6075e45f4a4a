"""The virtual environment that the scripts run in."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts import ROOT

ENVIRONMENT = ROOT / ".venv"


def enter(*extras: str) -> None:
    """Restart this script with the Python of .venv, which is created first if it is missing.

    The environment has the package with these extras of setup.cfg. Does nothing if that Python is
    already running.
    """
    if sys.prefix == str(ENVIRONMENT):
        return
    made = subprocess.run([ROOT / "scripts" / "venv", *extras], check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)
    python = str(ENVIRONMENT / "bin" / "python")
    os.execv(python, [python, *sys.argv])
