"""Wrappers around Slurm's commands that log all writes, and fail on demand."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

NAMES = ("squeue", "scontrol", "sacct", "scancel")
WRITE = "write"
"""The name for scontrol when it reads changes from its standard input."""

_WRAPPER = """#!/bin/sh
# Stands in the place of {name}. $PPID is who called it.
folder={folder}
name={name}
if [ $name = scontrol ] && [ $# = 0 ]; then
    name=write
    cat >"$folder/writes.$$"
    grep -q . "$folder/writes.$$" && [ -e "$folder/stop-at-next-write" ] && {{
        rm "$folder/stop-at-next-write"
        kill -STOP $PPID
    }}
    now=$(date +%s.%N)
    sed "/^after-/d; s/^/$now $PPID /" "$folder/writes.$$" >>"$folder/log"
    exec <"$folder/writes.$$"
    rm "$folder/writes.$$"
fi
if [ -e "$folder/fault.$name" ]; then
    echo "$(date +%s.%N) $name $*" >>"$folder/faults"
    set -- {real} "$@"
    . "$folder/fault.$name"
fi
exec {real} "$@"
"""


@dataclass(frozen=True)
class Write:
    """One line that a controller gave to scontrol."""

    at_s: float
    pid: int
    line: str


class Commands:
    """A folder of wrapped commands, to be put first on a controller's PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            real = shutil.which(name)
            assert real, name
            path = folder / name
            quoted = shlex.quote(str(folder))
            path.write_text(_WRAPPER.format(name=name, folder=quoted, real=shlex.quote(real)))
            path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a controller finds these commands first."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def writes(self) -> list[Write]:
        """Return all writes, in order of time."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        parts = (line.split(" ", 2) for line in lines)
        writes = (Write(float(at), int(pid), line) for at, pid, line in parts)
        return sorted(writes, key=lambda write: write.at_s)

    def stop_at_next_write(self) -> Path:
        """Stop (SIGSTOP) the next process that writes; the file is removed once it is stopped."""
        path = self.folder / "stop-at-next-write"
        path.touch()
        return path

    def go_wrong(self, name: str, script: str) -> None:
        """Replace a command by this piece of shell, in which ``"$@"`` is the real command.

        ``name`` is one of ``NAMES``, or ``WRITE``.
        """
        draft = self.folder / f".fault.{name}"
        draft.write_text(f"{script}\nexit 0\n")
        draft.rename(self.folder / f"fault.{name}")

    def go_right(self) -> None:
        """Restore all commands."""
        for name in (*NAMES, WRITE):
            (self.folder / f"fault.{name}").unlink(missing_ok=True)

    def calls(self) -> int:
        """Return how often a faulty command was called."""
        log = self.folder / "faults"
        return len(log.read_text().splitlines()) if log.exists() else 0
