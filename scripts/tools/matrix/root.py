"""A root for each release: a Debian with its Slurm, its Python and the requirements of the tests.

It is built in layers. Each is kept until its inputs change, and is then rebuilt along with those
above it.
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
from scripts.testbed.cluster.model import SYSTEM_PATH
from scripts.testbed.cluster.packages import answer_of
from scripts.testbed.debian import machine, namespaces
from scripts.testbed.debian.machine import RESOLVER
from scripts.testbed.debian.namespaces import HOSTS
from scripts.testbed.debian.root import copy_of_checkout, debootstrap, host_mirror
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
    # Package lists of an unreleased Debian, or of a stale mirror, soon expire.
    "etc/apt/apt.conf.d/99matrix": 'Acquire::Check-Valid-Until "false";\n'
    'APT::Install-Recommends "false";\n'
    'DPkg::Options { "--force-unsafe-io"; };\n',
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
    "etc/hosts": HOSTS,
}
"""Files written into a new root before any package is installed."""

VENVS = {driver: Path("/opt/slurm-tiresias") / driver for driver in DRIVERS}
"""One environment per driver, so that pyslurm is absent if it is not used."""
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
        """Return the path on this machine of a path inside the root."""
        return self.path / inside.relative_to("/")


def environment(driver: str) -> dict[str, str]:
    """Return the environment for programs in a root that use this driver."""
    path = f"{VENVS[driver]}/bin:{SYSTEM_PATH}"
    # Selects the driver of the tests' controllers (scripts/testbed/real_controller.py).
    told = {} if driver == COMMANDS else {DRIVER_VARIABLE: driver}
    return {**namespaces.ENVIRONMENT, "PATH": path, "PYTHONPATH": str(SOURCE), **told}


@contextmanager
def held(cache: Path, release: Release) -> Iterator[Root]:
    """Lock and yield the root of this release."""
    folder = cache / release.debian
    with machine.alone_with(folder / "lock", say):
        yield Root(release, folder)


def make(root: Root, drivers: Sequence[str]) -> None:
    """Build the layers that are missing or out of date."""
    mirror = host_mirror()
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
        below = hashlib.sha256(json.dumps([below, *ingredients]).encode()).hexdigest()
        if made_of.get(name) == below:
            continue
        # Drop the records of this layer and those above, so that an interrupted build starts over.
        made_of = {kept: of for kept, of in made_of.items() if kept not in names[place:]}
        _record(root, made_of)
        began_s = time.monotonic()
        say(f"{root.release.debian}: making {name}")
        build()
        made_of[name] = below
        _record(root, made_of)
        say(f"{root.release.debian}: {name} made in {time.monotonic() - began_s:.0f} s")


def clear_tmp(root: Root) -> None:
    """Remove leftovers of earlier runs from /tmp, which is on disk so that files can be sealed."""
    sealed = ["chattr", "-R", "-f", "-i", str(root.path / "tmp")]
    subprocess.run(sealed, stderr=subprocess.DEVNULL, check=False)
    for entry in (root.path / "tmp").iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def make_debian(root: Root, mirror: str) -> None:
    """Install Debian, and its packages of Slurm and of the tests' requirements."""
    debootstrap(root.path, root.release.debian, mirror, ["ca-certificates"])
    for name, text in FILES.items():
        (root.path / name).write_text(text)
    (root.path / "usr/sbin/policy-rc.d").chmod(0o755)
    for arguments in (["update"], ["install", "-y", *PACKAGES], ["clean"]):
        # Packages write to the paths that pip needs, so only the resolver is bound for apt-get.
        fetch(root, ["apt-get", "-q", *arguments], [RESOLVER])
    copy_of_checkout(root / SOURCE)


def make_venv(root: Root, driver: str) -> None:
    """Create a virtual environment with the requirements of the tests from setup.cfg."""
    venv = VENVS[driver]
    shutil.rmtree(root / venv, ignore_errors=True)
    (root / venv).parent.mkdir(parents=True, exist_ok=True)
    pip = [f"{venv}/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    fetch(root, ["python3", "-m", "venv", str(venv)])
    fetch(root, [*pip, "--editable", f"{SOURCE}[test]"])


def make_pyslurm(root: Root) -> None:
    """Create a virtual environment with pyslurm, built for the root's Slurm."""
    make_venv(root, PYSLURM)
    python = VENVS[PYSLURM] / "bin" / "python"
    recipe = SOURCE / PYSLURM_RECIPE.relative_to(ROOT)
    fetch(root, ["python3", str(recipe), "--python", str(python)])


def fetch(root: Root, command: Sequence[str], shown: Sequence[Path] = ()) -> None:
    """Run a command in the root with network and this machine's package sources; raise
    ``ClickException`` with its last output if it fails."""
    paths = shown or machine.fetching_paths()
    environment = {**machine.fetching_environment(), "DEBIAN_FRONTEND": "noninteractive"}
    inside = namespaces.entering(root.path, command, shown=paths, alone=False)
    status, said = answer_of(inside, environment)
    if status != 0:
        last_words = "\n  ".join(said.strip().splitlines()[-12:])
        raise click.ClickException(f"{' '.join(command)} failed:\n  {last_words}")


def say(text: str) -> None:
    click.echo(f"matrix: {text}", err=True)


def _recorded(root: Root) -> dict[str, str]:
    """Return what each existing layer was built from."""
    try:
        return dict(json.loads((root.folder / "made-of.json").read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def _record(root: Root, made_of: Mapping[str, str]) -> None:
    draft = root.folder / "made-of.json.new"
    draft.write_text(json.dumps(made_of, indent=2) + "\n")
    draft.replace(root.folder / "made-of.json")
