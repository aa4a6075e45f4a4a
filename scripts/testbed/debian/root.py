"""Debian root file systems for builds and installs: made once, copied for each use, booted.

A root is outside the repository, and everything in it runs in separate namespaces: all mounts and
processes end with the root's first process. The network is the machine's.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from scripts import ROOT
from scripts.testbed.cluster.model import SYSTEM_PATH
from scripts.testbed.cluster.packages import answer_of
from scripts.testbed.debian import machine, namespaces

Command = TypeVar("Command", bound=Callable[..., Any])

PATIENCE_S = 60.0

ANY_DEBIAN = Path("/usr/share/debootstrap/scripts/sid")
"""The debootstrap script for any release, even one that this debootstrap does not know."""

# Kernel settings are read-only, as in a container, so that systemd leaves them alone. The root must
# be the root of its mount namespace, or systemd cannot sandbox services.
_MOUNT = """
set -e
root=$1 archives=$2
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount --bind "$archives" "$root/var/cache/apt/archives"
cd "$root"
pivot_root . mnt
exec chroot . sh -c 'umount -l /mnt && exec "$@"' sh "$@"
"""


class RootError(click.ClickException):
    """A failure in a root; the message says what failed, and includes its output."""


class Root:
    """A root with a running first process, whose namespaces all commands enter."""

    def __init__(self, folder: Path, first: int) -> None:
        self.folder = folder
        self._first = first

    def ask(self, *command: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Run a command; return its exit code and output."""
        whole = {"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        inside = ["nsenter", f"--target={self._first}", "--all", "--root", "--wd", *command]
        return answer_of(inside, {**whole, **(env or {})})

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Run a command that must succeed; return its output."""
        code, text = self.ask(*command, env=env)
        if code != 0:
            raise RootError(f"{' '.join(command)} ended with {code}:\n{text}")
        return text

    def apt_get(self, *arguments: str) -> str:
        """Run apt-get without questions; it keeps downloaded packages for the next root."""
        return self.run("apt-get", "-y", "-q", "-o", "APT::Keep-Downloaded-Packages=1", *arguments)

    def until(self, what: str, *command: str) -> str:
        """Repeat a command until it succeeds; return its output."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, text = self.ask(*command)
            if code == 0:
                return text
            if time.monotonic() > deadline:
                raise RootError(f"not within {PATIENCE_S:.0f} s: {what}:\n{text}")
            time.sleep(0.1)


@contextmanager
def entered(folder: Path, archives: Path, *first: str) -> Iterator[Root]:
    """Start a root with ``first`` as its first process, and kill it at the end of the block."""
    with _cgroup() as cgroup:
        outer = subprocess.Popen(
            [
                *("sh", "-c", f'echo $$ >"{cgroup}/cgroup.procs" && exec "$@"', "sh"),
                *("unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork"),
                *("--kill-child", "--propagation", "private"),
                *("sh", "-c", _MOUNT, "sh", str(folder), str(archives), *first),
            ],
            env={"PATH": SYSTEM_PATH, "container": "other"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Root(folder, _first_process(outer, first[0]))
        finally:
            outer.send_signal(signal.SIGKILL)
            outer.communicate()


def _first_process(outer: subprocess.Popen[str], program: str) -> int:
    """Wait until the root's first process has executed ``program``; return its pid."""
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    deadline = time.monotonic() + PATIENCE_S
    while outer.poll() is None and time.monotonic() < deadline:
        for child in children.read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if words[0].decode() == program:
                return int(child)
        time.sleep(0.02)
    outer.kill()
    raise RootError(f"the root cannot be entered: {outer.communicate()[1]}")


@contextmanager
def booted(folder: Path, archives: Path) -> Iterator[Root]:
    """Boot a root with its own systemd, up to basic.target, so that services can be started."""
    with entered(folder, archives, "/lib/systemd/systemd", "--unit=basic.target") as root:
        root.until("systemd is up", "systemctl", "is-active", "--quiet", "basic.target")
        yield root


@contextmanager
def used(folder: Path, archives: Path) -> Iterator[Root]:
    """Enter a root in which no services run."""
    with entered(folder, archives, "/bin/sleep", "infinity") as root:
        yield root


@contextmanager
def _cgroup() -> Iterator[Path]:
    """Create a control group for a root's processes, below which systemd creates its own."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    tops = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
    if not tops:
        raise RootError("no cgroup2 is mounted, and systemd requires it")
    group = tops[0] / f"slurm-tiresias-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        _remove_cgroup(group)


def _remove_cgroup(group: Path) -> None:
    """Remove the control group, after waiting until its last process is gone."""
    deadline = time.monotonic() + PATIENCE_S
    while "populated 1" in (group / "cgroup.events").read_text():
        if time.monotonic() > deadline:
            raise RootError(f"processes live on in {group}")
        time.sleep(0.02)
    for folder in sorted(group.rglob("*/"), reverse=True):
        folder.rmdir()
    group.rmdir()


def copy_of(base: Path, folder: Path) -> Path:
    """Copy a base root into a folder, which is replaced."""
    if folder.exists():
        shutil.rmtree(folder)
    subprocess.run(["cp", "-a", "--reflink=auto", base, folder], check=True)
    return folder


def copy_of_checkout(folder: Path) -> None:
    """Copy tracked and not ignored files of the checkout, so that later edits do not interfere."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    for name in map(os.fsdecode, filter(None, listed.stdout.split(b"\0"))):
        if (file := ROOT / name).is_file() or file.is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / name, follow_symlinks=False)


def base_root(suite: str, cache: Path, packages: Sequence[str] = ()) -> Path:
    """Return a minimal root of a Debian release with ``packages``, which is made only once.

    Its packages come from the same mirror as this machine's.
    """
    folder = cache / "+".join((suite, *packages))
    if folder.exists():
        return folder
    sources = _debian_sources(suite)
    draft = folder.with_name(f"{folder.name}.draft")
    debootstrap(draft, suite, sources[0].split()[1], packages)
    apt = draft / "etc" / "apt"
    (apt / "sources.list").write_text("\n".join(sources) + "\n")
    (apt / "apt.conf.d" / "90host").write_text(_apt_settings())
    return draft.rename(folder)


def cache_option(use: str) -> Callable[[Command], Command]:
    """The option ``--cache`` of a command: the folder that keeps roots from run to run."""
    own = os.environ.get("XDG_CACHE_HOME")
    return click.option(
        "--cache",
        type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
        default=(Path(own) if own else Path("/var/cache")) / "slurm-tiresias" / use,
        help="The folder that keeps the roots of Debian and what is fetched; remove it to make all "
        "anew. Default: "
        f"slurm-tiresias/{use} in $XDG_CACHE_HOME, or in /var/cache.",
    )


def host_suite() -> str:
    """Return the codename of this machine's Debian release, such as bookworm."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def host_mirror() -> str:
    """Return the mirror of this machine's own Debian."""
    return _debian_sources(host_suite())[0].split()[1].rstrip("/")


def debootstrap(folder: Path, suite: str, mirror: str, packages: Sequence[str]) -> None:
    """Create a minimal Debian in a folder, whose old content is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["debootstrap", "--variant=minbase"]
    command += [f"--include={','.join(packages)}"] if packages else []
    # Its mounts disappear with the namespace, even if it is killed.
    status, said = answer_of(
        [
            *("setpriv", "--pdeathsig=KILL", "unshare", *namespaces.NAMESPACES, *command),
            *(suite, str(folder), mirror, str(ANY_DEBIAN)),
        ],
        machine.fetching_environment(),
    )
    if status != 0:
        raise RootError(f"debootstrap failed:\n{said[-2000:]}")


def _debian_sources(suite: str) -> list[str]:
    """Derive the lines of sources.list for a release from this machine's."""
    codename = host_suite()
    form = "deb $(REPO_URI) $(CODENAME) $(COMPONENT)"
    which = ("Origin: Debian", "Created-By: Packages")
    found = _output("apt-get", "indextargets", "--format", form, *which)
    lines = [line.replace(codename, suite) for line in found.splitlines() if line.endswith(" main")]
    lines.sort(key=lambda line: line.split()[2] != suite)
    if not lines or lines[0].split()[2] != suite:
        raise RootError("this machine's apt has no packages of Debian. Run: apt-get update")
    return list(dict.fromkeys(lines))


def _apt_settings() -> str:
    """Return this machine's apt settings for fetching packages that a root needs too."""
    lines = _output("apt-config", "dump", "Acquire").splitlines()
    wanted = ("::Proxy", "Check-Valid-Until", "Check-Date")
    return "".join(f"{line}\n" for line in lines if any(word in line for word in wanted))


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
