"""Write etc/requirements.lock: what pip installs for the package, its extras and its build."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click

from scripts import ROOT

LOCK = ROOT / "etc" / "requirements.lock"
EXTRAS = ("report", "tune", "metrics", "gpu")
HEAD = """\
# Written by scripts/dev lock. To install: pip install --require-hashes -r etc/requirements.lock,
# and then the package itself: pip install --no-deps --no-build-isolation .
"""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("uv", nargs=-1, type=click.UNPROCESSED)
def lock(uv: Sequence[str]) -> None:
    """Write etc/requirements.lock: versions and hashes, for Python 3.11 and later.

    Locked versions are kept if setup.cfg allows them. Arguments go to "uv pip compile": --upgrade
    takes the newest version of every package, --upgrade-package NAME of one.
    """
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        # uv keeps versions that it finds in its output file.
        draft = shutil.copy(LOCK, Path(folder) / LOCK.name)
        command = [str(Path(sys.prefix) / "bin" / "uv"), "pip", "compile", "setup.cfg", "-"]
        command += [f"--extra={extra}" for extra in EXTRAS]
        command += ["--quiet", "--universal", "--python-version=3.11", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", f"--output-file={draft}", *uv]
        ended = subprocess.run(
            command,
            cwd=ROOT,
            input="\n".join(needed),
            text=True,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if ended.returncode != 0:
            raise click.ClickException(f"uv ended with {ended.returncode}, see above")
        LOCK.write_text(HEAD + Path(draft).read_text())
