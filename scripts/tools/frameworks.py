"""Test the examples with the usual training frameworks, in a separate environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from scripts import ROOT

TESTS = "tests/examples"
NEEDED = {"pytest": "pytest", "torch": "torch"}
"""The requirements of the short form: importable module, and package."""

FRAMEWORKS = {
    "accelerate": "accelerate",
    "jax": "jax",
    "keras": "keras",
    "lightning": "lightning",
    "mlflow": "mlflow-skinny",
    "orbax": "orbax-checkpoint",
    "torchdata": "torchdata",
    "transformers": "transformers",
    "wandb": "wandb",
}
"""The further requirements of the long form."""

SHORT_LIMIT_S, LONG_LIMIT_S = 240, 1800
"""Time limits for installing one package, by form."""


@click.command()
@click.option("--short", is_flag=True, help="Only PyTorch with two workers, preempted once.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    default=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slurm-tiresias",
    help="The folder that keeps the environment. Default: slurm-tiresias in $XDG_CACHE_HOME, or in "
    "~/.cache.",
)
def frameworks(short: bool, cache: Path) -> None:
    """Preempt trainings with PyTorch, Lightning, Transformers, Accelerate, JAX and Keras.

    Installs the frameworks from pip's indexes, with the CPU build of PyTorch if there is one, and
    runs tests/examples with them. A framework that cannot be installed is named and skipped. The
    short form takes about three minutes the first time, and half a minute after that.
    """
    python = _environment(cache / ("frameworks-short" if short else "frameworks"))
    for module, package in {**NEEDED, **({} if short else FRAMEWORKS)}.items():
        problem = _installed(python, module, package, SHORT_LIMIT_S if short else LONG_LIMIT_S)
        if problem:
            click.echo(f"frameworks: {package} was left out: {problem}")
            if module in NEEDED:
                return
    chosen = "not long" if short else ""
    command = [python, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", TESTS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [*command, "-m", chosen, "-k", "frameworks or trackers"],
        cwd=ROOT,
        env=environment,
        check=False,
    )
    if ended.returncode != 0:
        raise SystemExit(ended.returncode)


def _environment(folder: Path) -> str:
    """Return the Python of the environment in a folder, which is created if needed."""
    python = folder / "bin" / "python"
    works = python.exists() and subprocess.run([python, "-c", "import pip"], check=False)
    if not works or works.returncode != 0:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    return str(python)


def _installed(python: str, module: str, package: str, limit_s: float) -> str:
    """Install a package if needed; return what prevented it, or ""."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    if subprocess.run([python, "-c", look], check=False).returncode == 0:
        return ""
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    wanted = package + (_cpu_version(pip, package) if package == "torch" else "")
    try:
        ended = subprocess.run(
            [*pip, "install", "--quiet", wanted],
            timeout=limit_s,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it could not be installed within {limit_s:g} s"
    errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1] if ended.returncode != 0 else ""


def _cpu_version(pip: Sequence[str], package: str) -> str:
    """Return the newest CPU-only release if an index has one: it is a tenth as large as the
    other."""
    try:
        asked = subprocess.run(
            [*pip, "index", "versions", package],
            timeout=60,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    found = re.search(r"[0-9][0-9.]*\+cpu\b", asked.stdout)
    return f"=={found[0]}" if found else ""
