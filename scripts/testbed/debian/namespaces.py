"""Run commands in another Debian without leaving anything behind.

A command runs in its own namespaces: its mounts, its processes and, if it has one, its own network
disappear when it ends in any way, and when the process that started it ends.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.testbed.cluster.model import SYSTEM_PATH

HOSTNAME = "slurm-tiresias"
HOSTS = f"127.0.0.1 localhost {HOSTNAME}\n"
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "PATH": SYSTEM_PATH}

OWN_ADDRESS = "192.0.2.1/32"
"""A documentation address (RFC 5737), because with only 127.0.0.1 glibc resolves no names."""

NAMESPACES = ("--mount", "--pid", "--fork", "--uts", "--kill-child", "--propagation=private")


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The environment in which commands run: one root, or several that share /tmp."""

    roots: tuple[Path, ...]
    shown: tuple[Path, ...] = ()
    """Files and folders of this machine that are mounted read-only in each root."""
    alone: bool = True
    """Whether it has no network except its own loopback device."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs ``arguments`` on this machine's Debian with all roots
        mounted."""
        cut_off = ["--net"] if self.alone else []
        # The shell must not exec: as the first process it reaps orphaned processes.
        script = "\n".join(["set -e", *self._preparation(), '"$@"', "exit"])
        entered = ["setpriv", "--pdeathsig=KILL", "unshare", *NAMESPACES, *cut_off]
        return [*entered, "sh", "-c", script, "sh", *arguments]

    def _preparation(self) -> list[str]:
        lines = [f"hostname {HOSTNAME}"]
        if self.alone:
            lines += ["ip link set lo up", f"ip address add {OWN_ADDRESS} dev lo"]
        first, *others = self.roots
        for root in self.roots:
            lines += [
                # Make the root a mount point, as programs may expect of "/".
                _line("mount", "--bind", root, root),
                _line("mount", "--rbind", "/dev", root / "dev"),
                _line("mount", "-t", "proc", "proc", root / "proc"),
                _line("mount", "--rbind", "/sys", root / "sys"),
                *(line for path in self.shown for line in _shown(path, root)),
            ]
        lines += [_line("mount", "--bind", first / "tmp", root / "tmp") for root in others]
        # Make /proc show the processes of this namespace only.
        return [*lines, "mount -t proc proc /proc"]


def in_root(root: Path, arguments: Sequence[str], folder: str = "/") -> list[str]:
    """Return arguments for ``Namespaces.command`` that run ``arguments`` in one of its roots."""
    return ["chroot", str(root), "sh", "-c", 'cd "$0" && exec "$@"', folder, *arguments]


def entering(
    root: Path,
    arguments: Sequence[str],
    folder: str = "/",
    shown: Sequence[Path] = (),
    alone: bool = True,
) -> list[str]:
    """Return the command that runs ``arguments`` in this root only."""
    return Namespaces((root,), tuple(shown), alone).command(in_root(root, arguments, folder))


def follow(
    command: Sequence[str], environment: Mapping[str, str], told: Callable[[str], None]
) -> int:
    """Run a command without input, and call ``told`` with each line that it prints; return its
    exit status. It ends with this function in any case."""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                told(line.rstrip("\n"))
            return process.wait()
        finally:
            process.kill()


def _shown(path: Path, root: Path) -> list[str]:
    """Return the commands that bind-mount a path of this machine read-only in a root."""
    there = root / path.relative_to("/")
    if path.is_dir():
        made = [_line("mkdir", "-p", there)]
    else:
        made = [_line("mkdir", "-p", there.parent), _line("touch", there)]
    return [
        *made,
        _line("mount", "--bind", path, there),
        _line("mount", "-o", "remount,bind,ro", there),
    ]


def _line(*words: str | Path) -> str:
    return shlex.join(map(str, words))
