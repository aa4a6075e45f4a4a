"""The SPANK plugin's folder for jobs that run, on this host: where it is, and what bounds it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurm_tiresias.slurm.conf_file import PlugstackLine

DEFAULT = "/run/slurm-tiresias"
MOUNTS = Path("/proc/self/mountinfo")

_RUN = re.compile(r"\srun=(/\S*)")
_SIZE = re.compile(r"(?:^|,)size=(\d+)k(?:,|$)")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """``limit_bytes`` is what may be stored in it at most; None where nothing bounds it."""

    path: str
    on_own_tmpfs: bool
    limit_bytes: int | None


def run_folder(plugin: PlugstackLine, mounts: Path = MOUNTS) -> RunFolder | None:
    """What this host has of it; None where it is not there."""
    try:
        # Of several run= the last counts, as for the plugin. A line may be continued.
        lines = Path(plugin.file).read_text(errors="replace").split("\n")[plugin.line - 1 :]
        whole = "\n".join(lines).replace("\\\n", " ").partition("\n")[0].partition("#")[0]
        path = Path([DEFAULT, *_RUN.findall(whole)][-1]).resolve()
        if not path.is_dir():
            return None
        found = _tmpfs_options(path, mounts.read_text(errors="surrogateescape"))
    except OSError:
        return None
    size = None if found is None else _SIZE.search(found)
    return RunFolder(str(path), found is not None, int(size[1]) * 1024 or None if size else None)


def _tmpfs_options(folder: Path, mounts: str) -> str | None:
    """The options of a tmpfs mounted on this folder itself; the last mount hides those before."""
    options = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mounted_on = before.split(" ")[3:5]
        if mounted_on != str(folder):
            continue
        kind, _, super_options = after.split(" ")
        # A folder of another tmpfs that is mounted here once more shares the limit of that one.
        options = super_options if kind == "tmpfs" and root == "/" else None
    return options
