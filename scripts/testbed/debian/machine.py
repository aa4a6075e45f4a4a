"""Find out how this machine fetches Debian's and Python's packages."""

from __future__ import annotations

import fcntl
import os
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
from scripts.testbed.cluster.packages import install
from scripts.testbed.debian.namespaces import ENVIRONMENT

NEEDED = {
    "debootstrap": "debootstrap",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ip": "iproute2",
    "apt-get": "apt",
}
"""The programs needed on this machine, and the Debian packages that contain them."""

RESOLVER = Path("/etc/resolv.conf")

PASSED_ON = re.compile(r"PIP_\w+|(https?|no)_proxy", re.IGNORECASE)
"""Environment variables that control how packages are fetched."""


def get_ready(others: Mapping[str, str] = MappingProxyType({})) -> None:
    """Install the missing programs for creating and entering another Debian, and ``others``.

    ``others`` maps programs to packages, like NEEDED. Raises ``ClickException`` unless the user is
    root, and if packages cannot be installed.
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


@contextmanager
def alone_with(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock during the block; call ``say`` if it has to wait for it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{lock.parent} is in use, waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetching_environment() -> dict[str, str]:
    """Return the environment of programs in a root that fetch packages as this machine does."""
    own = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return {**ENVIRONMENT, **own}


def fetching_paths() -> list[Path]:
    """Return the paths that pip needs in a root to work as it does here: its configuration, files
    named there, the resolver's settings and the certificates."""
    found = {RESOLVER, Path("/etc/ssl/certs"), *_pip_files()}
    # The files of an index in a local folder are beside it.
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
