"""A root for each release: another Debian with its Slurm, its Python and these tests' needs.

It is made in layers. Each is kept until what it was made from changes, and then made anew with
those above it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.debian import machine, namespaces
from scripts.testbed.debian.machine import RESOLVER
from scripts.testbed.debian.namespaces import HOSTS, Chamber
from scripts.testbed.debian.root import copy_of_checkout, debootstrap
from scripts.tools.matrix.releases import COMMANDS, DRIVERS, PYSLURM, Release

PYSLURM_RECIPE = ROOT / "scripts" / "pyslurm"

SLURM = (
    *("slurmctld", "slurmd", "slurm-client", "slurmdbd", "libslurm-dev", "munge"),
    "mariadb-server",
)
PYTHON = ("python3", "python3-venv", "python3-dev")
BUILDING = ("gcc", "libc6-dev", "make", "valgrind")
TESTS = ("e2fsprogs", "hostname", "iproute2", "procps")
PACKAGES = (*SLURM, *PYTHON, *BUILDING, *TESTS)

FILES = {
    # The lists of a Debian in the making, or of a mirror that stands still, are soon too old.
    "etc/apt/apt.conf.d/99matrix": 'Acquire::Check-Valid-Until "false";\n'
    'APT::Install-Recommends "false";\n'
    'DPkg::Options { "--force-unsafe-io"; };\n',
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
    "etc/hosts": HOSTS,
}
"""What is written into a new root before any package is installed."""

VENVS = {driver: Path("/opt/slurm-tiresias") / driver for driver in DRIVERS}
"""One for each driver: where pyslurm is not asked for it is not there either."""
SOURCE = Path("/src")
DRIVER_VARIABLE = "TIRESIAS_TEST_DRIVER"
RESULTS = Path("/results")


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a release, in a folder of the cache."""

    release: Release
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "root"

    def __truediv__(self, inside: Path) -> Path:
        """Where something in it lies on this machine."""
        return self.path / inside.relative_to("/")


def environment(driver: str) -> dict[str, str]:
    """The environment in a root of what runs with this driver."""
    path = f"{VENVS[driver]}/bin:{namespaces.SYSTEM_PATH}"
    # The tests' controllers are told to use it (scripts/testbed/real_controller.py).
    told = {} if driver == COMMANDS else {DRIVER_VARIABLE: driver}
    return {**namespaces.ENVIRONMENT, "PATH": path, "PYTHONPATH": str(SOURCE), **told}


@contextmanager
def held(cache: Path, release: Release) -> Iterator[Root]:
    """The root of this release, for this process alone."""
    folder = cache / release.debian
    with machine.alone_with(folder / "lock", say):
        yield Root(release, folder)


def make(root: Root, drivers: Sequence[str], mirror: str, fresh: bool = False) -> None:
    """Make what is missing of it, or was made from something else; with ``fresh`` all of it."""
    if fresh:
        _record(root, {})
    copy_of_checkout(root / SOURCE)
    debian = [root.release.debian, mirror, *FILES.values(), *PACKAGES]
    setup = [(ROOT / name).read_text() for name in ("setup.cfg", "pyproject.toml")]
    layers: list[tuple[str, list[str], Callable[[], None]]] = [
        ("debian", debian, lambda: make_debian(root, mirror)),
        ("python", setup, lambda: make_venv(root, COMMANDS)),
    ]
    if PYSLURM in drivers:
        recipe = [PYSLURM_RECIPE.read_text()]
        layers.append(("pyslurm", recipe, lambda: make_pyslurm(root)))
    made_of = _recorded(root)
    names = [name for name, *_ in layers]
    below = ""
    for place, (name, ingredients, build) in enumerate(layers):
        below = _fingerprint([below, *ingredients])
        if made_of.get(name) == below:
            continue
        # What stands on it goes with it, and whatever is cut short is begun again.
        made_of = {kept: of for kept, of in made_of.items() if kept not in names[place:]}
        _record(root, made_of)
        began_s = time.monotonic()
        say(f"{root.release.debian}: making {name}")
        build()
        made_of[name] = below
        _record(root, made_of)
        say(f"{root.release.debian}: {name} made in {time.monotonic() - began_s:.0f} s")


def clear_tmp(root: Root) -> None:
    """Remove what earlier runs have left; /tmp is on the disk, as files that are sealed must be."""
    sealed = ["chattr", "-R", "-f", "-i", str(root.path / "tmp")]
    subprocess.run(sealed, stderr=subprocess.DEVNULL, check=False)
    for entry in (root.path / "tmp").iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def make_debian(root: Root, mirror: str) -> None:
    """Debian, and its packages of Slurm and of what the tests need."""
    debootstrap(root.path, root.release.debian, mirror, ["ca-certificates"])
    environment = {**namespaces.ENVIRONMENT, **machine.fetching_environment()}
    for name, text in FILES.items():
        (root.path / name).write_text(text)
    (root.path / "usr/sbin/policy-rc.d").chmod(0o755)
    environment["DEBIAN_FRONTEND"] = "noninteractive"
    for arguments in (["update"], ["install", "-y", *PACKAGES], ["clean"]):
        # Its packages write where what pip needs is shown.
        expect(fetching(root, ["apt-get", "-q", *arguments], [RESOLVER]), environment)
    copy_of_checkout(root / SOURCE)


def make_venv(root: Root, driver: str) -> None:
    """A virtual environment with what setup.cfg says that the tests need."""
    venv = VENVS[driver]
    shutil.rmtree(root / venv, ignore_errors=True)
    (root / venv).parent.mkdir(parents=True, exist_ok=True)
    pip = [f"{venv}/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    environment = {**namespaces.ENVIRONMENT, **machine.fetching_environment()}
    expect(fetching(root, ["python3", "-m", "venv", str(venv)]), environment)
    expect(fetching(root, [*pip, "--editable", f"{SOURCE}[test]"]), environment)


def make_pyslurm(root: Root) -> None:
    """A virtual environment with pyslurm, built for the Slurm of this root."""
    make_venv(root, PYSLURM)
    python = VENVS[PYSLURM] / "bin" / "python"
    recipe = SOURCE / PYSLURM_RECIPE.relative_to(ROOT)
    environment = {**namespaces.ENVIRONMENT, **machine.fetching_environment()}
    expect(fetching(root, ["python3", str(recipe), "--python", str(python)]), environment)


def fetching(root: Root, command: Sequence[str], shown: Sequence[Path] = ()) -> list[str]:
    """What runs a command in the root, with the network and this machine's ways to packages."""
    chosen = Chamber((root.path,), tuple(shown or machine.fetching_paths()), alone=False)
    return chosen.command(namespaces.in_root(root.path, command))


def expect(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a command; ``ClickException`` with its last words where it fails."""
    ended = subprocess.run(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode != 0:
        last_words = "\n  ".join(ended.stdout.strip().splitlines()[-12:])
        raise click.ClickException(f"{' '.join(command[-8:])} failed:\n  {last_words}")


def say(text: str) -> None:
    click.echo(f"matrix: {text}", err=True)


def _fingerprint(ingredients: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()


def _recorded(root: Root) -> dict[str, str]:
    """What each layer that is there was made from."""
    try:
        return dict(json.loads((root.folder / "made-of.json").read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def _record(root: Root, made_of: Mapping[str, str]) -> None:
    draft = root.folder / "made-of.json.new"
    draft.write_text(json.dumps(made_of, indent=2) + "\n")
    draft.replace(root.folder / "made-of.json")
