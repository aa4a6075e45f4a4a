"""A copy of the program that every user can read, wherever the checkout is.

Root's home is closed to other users, and so is what is installed in it. A process that has dropped
its privileges can then import only what it had imported before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROGRAM = "slurm-tiresias"
PATIENCE = ("scripts/testbed/__init__.py", "scripts/testbed/patience.py")
"""How long tests wait, which the commands in tests/cli import."""

EXTRAS = ("report", "tune", "metrics")


def copy_program(folder: Path) -> None:
    """Fill a folder with the package and all that it imports, to be first in ``PYTHONPATH``."""
    # Temporary files of the compiler may disappear at any moment.
    ignored = shutil.ignore_patterns("*.pyc.*")
    for name in ("slurm_tiresias", "tests/cli"):
        shutil.copytree(ROOT / name, folder / name, copy_function=_link, ignore=ignored)
    (folder / "scripts" / "testbed").mkdir(parents=True)
    for name in ("tests/__init__.py", "scripts/__init__.py", *PATIENCE):
        _link(ROOT / name, folder / name)
    required = _required(PROGRAM, EXTRAS, {})
    del required[PROGRAM]
    for needed in required.values():
        for file in needed.files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and file.suffix != ".pth" and source.exists():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                _link(source, folder / file)


def _required(
    name: str, extras: tuple[str, ...], found: dict[str, Distribution]
) -> dict[str, Distribution]:
    if name not in found:
        found[name] = distribution(name)
        for needed in _requirements(found[name], extras):
            _required(needed.name, tuple(needed.extras), found)
    return found


def _requirements(of: Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    for needed in map(Requirement, of.requires or ()):
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield needed


def _link(source: str | Path, target: str | Path) -> None:
    """Link or copy a file. With its timestamps kept it need not be compiled again."""
    if Path(source).stat().st_mode & 0o004:
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copy2(source, target)
    Path(target).chmod(0o644)
