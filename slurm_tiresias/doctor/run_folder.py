"""The SPANK plugin's run folder on this host: its path, and the limit on its size."""

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
    """``limit_bytes`` is the most that can be stored in it; None if there is no limit."""

    path: str
    on_own_tmpfs: bool
    limit_bytes: int | None


def run_folder(plugin: PlugstackLine, mounts: Path = MOUNTS) -> RunFolder | None:
    """Return the run folder of this host; None if there is none."""
    try:
        # The last run= counts, as in the plugin. A line may be continued with a backslash.
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
    """Return the options of a tmpfs mounted on this folder; the last mount hides earlier ones."""
    options = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mounted_on = before.split(" ")[3:5]
        if mounted_on != str(folder):
            continue
        kind, _, super_options = after.split(" ")
        # A bind mount of a folder inside another tmpfs shares that tmpfs's size limit.
        options = super_options if kind == "tmpfs" and root == "/" else None
    return options
