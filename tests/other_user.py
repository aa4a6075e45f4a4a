"""Programs of another user, who has no rights here: what users see, and what they cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

BECOMES_NOBODY = "import os; os.setgroups([]), os.setgid(65534), os.setuid(65534)"
"""A line of a program after its imports: the user may be unable to reach the interpreter of a
virtual environment, and so gets its rights late."""


def command_line(*modules: str) -> list[str]:
    """Return how another user starts the command line, with these modules loaded before."""
    imports = f"import sys, {', '.join(modules)}\nfrom slurm_tiresias.cli.main import main"
    return [sys.executable, "-c", f"{imports}\n{BECOMES_NOBODY}\nsys.exit(main())"]


def asked_by_nobody(imports: str, query: str, *arguments: object) -> str:
    """Return what a query prints, or the error that it raises if no controller answers."""
    program = f"""
import sys
from pathlib import Path
from slurm_tiresias.errors import NotRunningError
{imports}
{BECOMES_NOBODY}
try:
    print({query})
except NotRunningError as error:
    print(error)
"""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A temporary folder that other users may read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
