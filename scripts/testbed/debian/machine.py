"""What this machine says about where Debian's and Python's packages come from."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import click

from scripts.testbed.cluster.messages import ClusterError
from scripts.testbed.cluster.packages import install, run_apt

NEEDED = {
    "debootstrap": "debootstrap",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ip": "iproute2",
    "apt-get": "apt",
}
"""Programs of this machine, and the packages that have them."""

RESOLVER = Path("/etc/resolv.conf")

PASSED_ON = re.compile(r"PIP_\w+|(https?|no)_proxy", re.IGNORECASE)
"""Variables that say how packages are fetched."""


def get_ready(others: Mapping[str, str] = MappingProxyType({})) -> None:
    """Install what is missing here to make and enter another Debian, and ``others`` like NEEDED.

    ``ClickException`` for any user but root, and where packages cannot be installed.
    """
    if os.geteuid() != 0:
        raise click.ClickException("only root can make and enter another Debian. Run it as root.")
    needed = {**NEEDED, **others}
    missing = sorted({package for name, package in needed.items() if shutil.which(name) is None})
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise click.ClickException(f"not installed: {', '.join(missing)}. Install them first.")
    try:
        install(missing)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error


def debian_mirror() -> str:
    """Where this machine's own Debian comes from."""
    mirror = _known_mirror()
    if mirror is None:
        # On a new machine apt has no lists yet.
        run_apt(["apt-get", "update", "-q"])
        mirror = _known_mirror()
    if mirror is None:
        raise click.ClickException(
            "apt knows no mirror of this machine's own Debian. Name one with --mirror."
        )
    return mirror


def _known_mirror() -> str | None:
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    asked = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)"]
    answer = subprocess.run(
        [*asked, "Created-By: Packages"], capture_output=True, text=True, check=True
    )
    told = (line.partition(" ") for line in answer.stdout.splitlines())
    return next((uri.rstrip("/") for release, _, uri in told if release == codename), None)


@contextmanager
def alone_with(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """For this process alone is whatever the lock stands for; says so where it has to wait."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{lock.parent} is in use, waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetching_environment() -> dict[str, str]:
    """The variables that say how packages are fetched."""
    return {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}


def fetching_paths() -> list[Path]:
    """What must be seen in a root for pip to do there as it does here: its files, and what they
    name, and whom to trust."""
    found = {RESOLVER, Path("/etc/ssl/certs"), *_pip_files()}
    # An index that is a folder names files beside it.
    whole = {path.parent if path.name == "simple" else path for path in found}
    return sorted(path for path in whole if path.exists() and whole.isdisjoint(path.parents))


def _pip_files() -> Iterator[Path]:
    pip = [sys.executable, "-m", "pip", "config"]
    debug = subprocess.run([*pip, "debug"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^ *(/\S+), exists: True", debug, re.MULTILINE):
        yield Path(name)
    shown = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"(?:^|[\s'=]|file://)(/[^\s']+)", shown):
        yield Path(name)
