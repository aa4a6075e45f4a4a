"""The data of a cluster: its shape, its ports, its folder and the record file in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from scripts.testbed.cluster.messages import ClusterError, UsageError, counted
from scripts.testbed.cluster.rebuilt import rebuilt

PATIENCE_S = 180.0
"""Seconds that `up` may take in all, once the packages are installed."""

MARK = "SLURM_TIRESIAS_CLUSTER_DAEMON"
"""The environment variable that marks every daemon, so that `down` finds them."""

FOLDER_VARIABLE = "SLURM_TIRESIAS_CLUSTER_DIR"
"""The variable that `env` exports. Not MARK, or `down` would end the user's own programs."""

RECORD = "slurm-tiresias-cluster.json"
"""The file that marks a folder as a cluster's, which may therefore be removed."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH for the daemons, because users' own often lacks the sbin folders."""

MOST_SOCKET_PATH = 107
"""Linux refuses longer paths for Unix sockets."""


@dataclass(frozen=True)
class Shape:
    """The options of a cluster; two clusters of the same shape are interchangeable."""

    nodes: int
    gpus: int
    gpu_types: tuple[str, ...]
    cpus: int
    memory_mb: int
    partitions: tuple[str, ...]
    slurm_conf_lines: tuple[str, ...]
    accounting: bool
    conf_files: tuple[str, ...] = ()
    gres_conf_lines: tuple[str, ...] = ()
    backup: bool = False
    slurm_user: str = ""
    """The user that slurmctld and slurmdbd run as; "" for the user who starts them."""

    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    def in_words(self) -> str:
        return f"{counted(self.nodes, 'node')} of {counted(self.gpus, 'GPU')}"

    def gres(self, node: int) -> str:
        return ":".join(part for part in ("gpu", self.gpu_types[node], str(self.gpus)) if part)


@dataclass(frozen=True)
class Ports:
    slurmctld: int
    slurmdbd: int
    database: int
    slurmd: tuple[int, ...]


@dataclass(frozen=True)
class Started:
    """A process started by this script. Its start time is kept because pids are reused."""

    name: str
    pid: int
    start_time: int


@dataclass(frozen=True)
class Record:
    """The content of a cluster's record file."""

    folder: str
    shape: Shape
    ports: Ports
    ready: bool = False
    processes: tuple[Started, ...] = ()


@dataclass(frozen=True)
class Place:
    """The folder of a cluster."""

    folder: Path

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    @property
    def record_file(self) -> Path:
        return self[RECORD]

    @property
    def record_draft(self) -> Path:
        return self[RECORD + ".new"]

    @property
    def slurm_conf(self) -> Path:
        return self["etc/slurm.conf"]

    @property
    def munge_socket(self) -> Path:
        return self["run/munge.socket"]

    @property
    def cluster_name(self) -> str:
        """Derived from the folder, so that jobs of a lost cluster can be recognized."""
        return "tiresias_" + hashlib.sha256(bytes(self.folder)).hexdigest()[:10]

    @property
    def mark(self) -> bytes:
        return f"{MARK}={self.folder}".encode()

    def environment(self) -> dict[str, str]:
        """The daemons' environment, without the caller's, which may refer to another Slurm."""
        kept = {name: os.environ[name] for name in ("TZ", "LANG") if name in os.environ}
        own = {MARK: str(self.folder), "SLURM_CONF": str(self.slurm_conf), "HOME": "/"}
        return {"PATH": SYSTEM_PATH, **kept, **own}


def place_named(argument: str | None) -> Place:
    folder = Path(argument or f"/tmp/slurm-tiresias-cluster-{os.getuid()}").resolve()
    text = str(folder)
    if re.search(r"[^A-Za-z0-9._/+-]", text):
        # Slurm's files separate by spaces and commas, have no quoting, and expand %.
        raise UsageError(
            f"--dir {text!r} has characters Slurm's files cannot hold. "
            "Use letters, digits and . _ + - only."
        )
    longest = "/spool/n999/n999_67043328.4294967291"
    if len(text) + len(longest) > MOST_SOCKET_PATH:
        raise UsageError(
            f"--dir {text} is too long for the Unix sockets in it. "
            f"Use a path of at most {MOST_SOCKET_PATH - len(longest)} characters."
        )
    if folder.parent == folder:
        raise UsageError("--dir / cannot hold a cluster. Name a separate folder.")
    return Place(folder)


def read_record(place: Place) -> Record | None:
    """Return the record; None if the folder is not a cluster's."""
    try:
        return cast(Record, rebuilt(Record, json.loads(place.record_file.read_text())))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"{place.record_file} cannot be read: {error}. "
            f"Remove it with `{this_command('down', place)}`."
        ) from error


def write_record(place: Place, record: Record) -> None:
    """Replace the record atomically, so that neither readers nor kills leave half a record."""
    place.record_draft.write_text(json.dumps(asdict(record), indent=2) + "\n")
    place.record_draft.replace(place.record_file)


def this_command(name: str, place: Place) -> str:
    return f"{shlex.quote(sys.argv[0])} {name} --dir {place.folder}"
