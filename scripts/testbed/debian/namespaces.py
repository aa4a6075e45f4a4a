"""Running in another Debian, and leaving nothing behind.

A command runs in namespaces of its own: its mounts, its processes and, where it is cut off, its
network end with it, however it ends, and with the process that started it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOSTNAME = "slurm-tiresias"
HOSTS = f"127.0.0.1 localhost {HOSTNAME}\n"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "PATH": SYSTEM_PATH}

OWN_ADDRESS = "192.0.2.1/32"
"""An address for documentation (RFC 5737). With 127.0.0.1 alone glibc resolves no names."""

NAMESPACES = ("--mount", "--pid", "--fork", "--uts", "--kill-child", "--propagation=private")


@dataclass(frozen=True, slots=True)
class Chamber:
    """Where commands run: one root, or several that share /tmp."""

    roots: tuple[Path, ...]
    shown: tuple[Path, ...] = ()
    """Files and folders of this machine, to be read in each root under the same name."""
    alone: bool = True
    """With no network but a loopback device of its own."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """What runs ``arguments`` on this machine's own Debian, with all roots made ready."""
        cut_off = ["--net"] if self.alone else []
        # The shell stays to the end: as the first process it reaps those that lose their parent.
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
                # A root that is a mount of its own, as what runs in it may expect of "/".
                _line("mount", "--bind", root, root),
                _line("mount", "--rbind", "/dev", root / "dev"),
                _line("mount", "-t", "proc", "proc", root / "proc"),
                _line("mount", "--rbind", "/sys", root / "sys"),
                *(line for path in self.shown for line in _shown(path, root)),
            ]
        lines += [_line("mount", "--bind", first / "tmp", root / "tmp") for root in others]
        # What looks for processes in /proc must find these, and no others.
        return [*lines, "mount -t proc proc /proc"]


def in_root(root: Path, arguments: Sequence[str], folder: str = "/") -> list[str]:
    """What runs ``arguments`` in a root of a chamber, by ``Chamber.command``."""
    return ["chroot", str(root), "sh", "-c", 'cd "$0" && exec "$@"', folder, *arguments]


def _shown(path: Path, root: Path) -> list[str]:
    """To see a path of this machine in a root, and not to write there: it is no copy."""
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
