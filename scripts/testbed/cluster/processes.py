"""Recognize, signal and end the processes of a cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.testbed.cluster.messages import ClusterError
from scripts.testbed.cluster.model import Place, Started

SLURM_DAEMONS = frozenset({"slurmctld", "slurmdbd", "slurmd", "slurmstepd"})


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    start_time: int
    owner: int
    name: str

    def environment(self) -> frozenset[bytes]:
        try:
            return frozenset(Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0"))
        except OSError:
            return frozenset()


def process(pid: int) -> Process | None:
    """Return the process with this id; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
    # The name is in parentheses, and may itself contain parentheses and spaces.
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[1]), int(fields[19]), owner, name)


def is_alive(started: Started) -> bool:
    found = process(started.pid)
    return found is not None and found.start_time == started.start_time


def ours(place: Place, recorded: Iterable[Started]) -> dict[int, Process]:
    """Return the cluster's processes: recorded and marked ones, jobs', and all descendants."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    everything = {pid: found for pid in pids if (found := process(pid)) is not None}
    roots = {pid for pid, found in everything.items() if may_end(found) and is_marked(found, place)}
    roots |= {s.pid for s in recorded if is_alive(s) and may_end(everything.get(s.pid))}
    family = with_descendants(roots, everything)
    family -= set(own_line(everything))
    return {pid: everything[pid] for pid in family}


def may_end(found: Process | None) -> bool:
    return found is not None and os.geteuid() in (0, found.owner)


def is_marked(found: Process, place: Place) -> bool:
    environment = found.environment()
    if place.mark in environment:
        return True
    # slurmd starts slurmstepd with SLURM_CONF as its whole environment, and a daemon that was
    # restarted by hand has SLURM_CONF too.
    if found.name in SLURM_DAEMONS and f"SLURM_CONF={place.slurm_conf}".encode() in environment:
        return True
    # A job's processes have their submitter's environment, and variables added by slurmstepd.
    of_this_cluster = f"SLURM_CLUSTER_NAME={place.cluster_name}".encode() in environment
    return of_this_cluster and any(v.startswith(b"SLURMD_NODENAME=") for v in environment)


def with_descendants(roots: set[int], everything: Mapping[int, Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for found in everything.values():
        children.setdefault(found.parent, []).append(found.pid)
    family: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in family:
            family.add(pid)
            waiting += children.get(pid, [])
    return family


def own_line(everything: Mapping[int, Process]) -> Iterator[int]:
    """Yield this process and its ancestors, because `down` may be called from within a job."""
    pid = os.getpid()
    while pid in everything:
        yield pid
        pid = everything[pid].parent


def send(found: Iterable[Process], number: signal.Signals) -> None:
    for target in found:
        again = process(target.pid)
        if again is not None and again.start_time == target.start_time:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target.pid, number)


def gone_within(seconds: float, targets: Sequence[Process]) -> bool:
    deadline = time.monotonic() + seconds
    left = list(targets)
    while left:
        left = [t for t in left if (p := process(t.pid)) and p.start_time == t.start_time]
        if left and time.monotonic() > deadline:
            return False
        time.sleep(0.01 if left else 0)
    return True


@dataclass(frozen=True)
class Wave:
    """Processes that are ended together, by SIGTERM and after ``patience`` seconds by SIGKILL.

    A wave without ``names`` is of all processes that are named in no other wave.
    """

    patience: float
    names: frozenset[str]


WAVES = (
    # slurmctld would take two seconds to save state that is deleted next.
    Wave(0.3, frozenset({"slurmctld", "slurmscriptd", "slurmd"})),
    # The jobs.
    Wave(3.0, frozenset()),
    # slurmstepd ignores SIGTERM, and without its job it only waits for the dead slurmctld.
    Wave(0.0, frozenset({"slurmstepd"})),
    Wave(3.0, frozenset({"slurmdbd"})),
    Wave(3.0, frozenset({"mariadbd", "munged"})),
)

NAMED_IN_WAVES = frozenset().union(*(wave.names for wave in WAVES))


def end_all(place: Place, recorded: Iterable[Started]) -> int:
    """End the cluster's processes, dependent ones first; return how many there were."""
    recorded = tuple(recorded)
    ended = 0
    for wave in WAVES:
        targets = [
            found
            for found in ours(place, recorded).values()
            if found.name in wave.names or not (wave.names or found.name in NAMED_IN_WAVES)
        ]
        ended += len(targets)
        send(targets, signal.SIGTERM)
        if not gone_within(wave.patience, targets):
            send(targets, signal.SIGKILL)
    deadline = time.monotonic() + 10.0
    while left := list(ours(place, recorded).values()):
        # A job may have started more processes meanwhile.
        if time.monotonic() > deadline:
            raise ClusterError(f"still running: {', '.join(f'{p.name} ({p.pid})' for p in left)}")
        send(left, signal.SIGKILL)
        gone_within(0.2, left)
    return ended
