"""The shared folder of the nodes' progress reports, as the controller reads it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.background import Background
from slurm_tiresias.job.record import RECORD_BYTES, Record, RecordError, decode
from slurm_tiresias.model import JobProgress, SlowestRank
from slurm_tiresias.owned_file import read_regular
from slurm_tiresias.profiler.run_id import PROGRESS_KIND, RunId, parsed_file_name
from slurm_tiresias.progress.checkpoints import LIST_NAME, text_of_folders
from slurm_tiresias.progress.live_file import MOST_BYTES, SUFFIX, NodeReport, parse
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.progress.reported_run import ReportedRun
from slurm_tiresias.steady_clock import steady_s
from slurm_tiresias.warn_once import WarnOnce

LOOK_EVERY_S = 5.0
SOON_S = 1.0
"""The interval between reads while a save is awaited."""

NAMES_OF_A_LOOK = 20_000
ENDED_OF_A_LOOK = 1000
"""Bounds on what is read in one pass; the rest is read in the next."""

KEPT_S = 600.0
"""How long a run is kept that its node no longer reports: until a cycle has seen its end."""

LOST_AFTER_S = 180.0
"""Six heartbeats of a node (``node.SIGN_OF_LIFE_S``)."""

CLOCK_WANDERS_S = 1.0
"""While Slurm's clock stays within this of the steady clock, known times are not adjusted."""

WORK_AT_ONCE_S = 0.002
RESTS = 19.0
"""The thread sleeps this many times as long as it works; a cycle that runs meanwhile takes 5 %
longer."""

LEAST_SLOWER = 0.1
"""A process is named as the slowest if its steps take longer than usual by this share."""

FORGOTTEN_S = 86_400.0
"""A node that has not written for this long is gone, and its file is removed."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The data of one pass; a later pass makes a new object and leaves this one unchanged."""

    running: Mapping[int, JobProgress]
    """The latest run of each job that reports anything, by raw job id."""
    ended: Mapping[RunId, Record]
    """The last reports of runs that have ended."""
    saves: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """When runs last saved according to their checkpoint folders, by raw job id and restarts."""


@dataclass(slots=True)
class _Live:
    """A node's file as last read."""

    signature: tuple[int, int, int]
    seen_s: float
    told: Mapping[RunId, NodeReport]
    saves: Mapping[RunId, float]


def slowest_of(ranks: Mapping[int, tuple[float, str]]) -> SlowestRank | None:
    """Return the slowest process of a job, from the step time and the node of each by rank; None if
    all are about as fast."""
    known = {rank: one for rank, one in ranks.items() if one[0] > 0}
    if len(known) < 2:
        return None
    rank = max(known, key=lambda rank: known[rank][0])
    (step_s, node), usual_s = known[rank], median(one[0] for one in known.values())
    if len(known) == 2:
        usual_s = min(one[0] for one in known.values())
    by = step_s / usual_s - 1.0
    return SlowestRank(rank, node, step_s, by, len(known)) if by > LEAST_SLOWER else None


class ProgressFolder:
    """Watches the folder; ``look``, in a separate thread, does all reading and removing.

    The thread uses little CPU time beside the cycles, and prepares everything for them, so that a
    cycle only looks up results.
    """

    def __init__(
        self,
        collect_dir: str,
        steady: Callable[[], float] = steady_s,
        wall: Callable[[], float] = time.time,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        """Follow the subfolder of ``collect_dir``; without one, nothing.

        ``steady`` and ``wall`` are clocks; ``rest`` sleeps for a number of seconds.
        """
        self._path = Path(collect_dir) / FOLDER if collect_dir else None
        self._steady = steady
        self._rest = rest
        self._ahead_s = self.ahead_s = wall() - steady()
        """How far Slurm's clock is ahead of the steady one; set anew by each cycle."""
        self._live: dict[str, _Live] = {}
        self._runs: dict[RunId, ReportedRun] = {}
        self._ended: dict[RunId, Record] = {}
        self._stored: set[RunId] = set()
        self._warning = WarnOnce("how far jobs are cannot be read for now")
        self.latest = Latest({}, {})
        self.checkpoint_folders: Mapping[int, str] = {}
        """The checkpoint folders of running jobs, by raw job id; set anew by each cycle."""
        self._listed: bytes | None = None
        self.background = Background("reading progress", self.look, LOOK_EVERY_S)

    def stored(self, runs: Collection[RunId]) -> None:
        """Have the files of these ended runs removed: their content is stored elsewhere."""
        self._stored |= set(runs)

    def look_soon(self) -> None:
        """Read again within a second, because a save is awaited."""
        self.background.step_soon(SOON_S)

    def look(self) -> None:
        """Read new files; remove those that are stored or forgotten."""
        if self._path is None:
            return
        try:
            self._path.mkdir(exist_ok=True)
            self._list_folders(self._path)
            self._read(self._path)
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()

    def _list_folders(self, folder: Path) -> None:
        """Tell the nodes which folders to scan."""
        path, content = folder / LIST_NAME, text_of_folders(self.checkpoint_folders)
        if self._listed is None:
            self._listed = path.read_bytes() if path.exists() else text_of_folders({})
        if content != self._listed:
            write_atomically(path, content, 0o640, group_of_folder=True)
            self._listed = content

    def _read(self, folder: Path) -> None:
        now_s = self._steady()
        self._follow_clock()
        with os.scandir(folder) as entries:
            names = {entry.name for entry in islice(entries, NAMES_OF_A_LOOK)}
        live = {name for name in names if name.endswith(SUFFIX)}
        began_s = time.thread_time()
        for name in live:
            self._read_live(folder / name, now_s)
            began_s = self._rest_after(began_s)
        for name in self._live.keys() - live:
            del self._live[name]
        self._read_ended(folder, names - live)
        self.latest = Latest(self._latest_runs(now_s), dict(self._ended), self._saves())

    def _latest_runs(self, now_s: float) -> Mapping[int, JobProgress]:
        chosen: dict[int, tuple[int, int, str]] = {}
        latest: dict[int, JobProgress] = {}
        step_s: dict[tuple[int, int], dict[int, tuple[float, str]]] = {}
        for run_id, run in list(self._runs.items()):
            if now_s - run.told_s > KEPT_S:
                del self._runs[run_id]
                continue
            if now_s - run.told_s > LOST_AFTER_S:
                run.told_again(now_s, now_s + self._ahead_s, lost=True)
            of = run_id.job_id, run_id.restarts
            for rank, one_s in run.ranks:
                step_s.setdefault(of, {})[rank] = one_s, run_id.node
            # Several nodes of a job may report: the first process counts, for the whole run.
            first_rank = run.ranks[0][0] if run.ranks else 0
            order = (-run_id.restarts, first_rank, run_id.node)
            if order < chosen.get(run_id.job_id, (1, 0, "")):
                chosen[run_id.job_id] = order
                latest[run_id.job_id] = run.progress
        for (job_id, restarts), ranks in step_s.items():
            progress, slowest = latest[job_id], slowest_of(ranks)
            if slowest and progress.restarts == restarts:
                latest[job_id] = replace(progress, slowest=slowest)
        return latest

    def _saves(self) -> Mapping[tuple[int, int], float]:
        saves: dict[tuple[int, int], float] = {}
        for live in self._live.values():
            for run_id, saved_s in live.saves.items():
                of = run_id.job_id, run_id.restarts
                saves[of] = max(saved_s, saves.get(of, 0.0))
        return saves

    def _follow_clock(self) -> None:
        by_s = self.ahead_s - self._ahead_s
        if abs(by_s) > CLOCK_WANDERS_S:
            self._ahead_s = self.ahead_s
            for run in self._runs.values():
                run.clock_was_set(by_s)

    def _rest_after(self, began_s: float) -> float:
        """Sleep after a stretch of work long enough to delay a cycle; return when the next stretch
        begins."""
        worked_s = time.thread_time() - began_s
        if worked_s < WORK_AT_ONCE_S:
            return began_s
        self._rest(RESTS * worked_s)
        return time.thread_time()

    def _read_live(self, path: Path, now_s: float) -> None:
        before = self._live.get(path.name)
        try:
            found = path.stat(follow_symlinks=False)
            signature = (found.st_ino, found.st_mtime_ns, found.st_size)
            if before is not None and before.signature == signature:
                if now_s - before.seen_s > FORGOTTEN_S:
                    path.unlink()
                return
            # One byte more than the maximum, so that a longer file is noticed.
            told, saves = parse(read_regular(path, MOST_BYTES + 1))
        except (OSError, ValueError) as error:
            self._warning.warn(f"{path.name}: {error}")
            return
        self._live[path.name] = _Live(signature, now_s, told, saves)
        old = before.told if before else {}
        for run_id, one in told.items():
            self._take(run_id, one, old.get(run_id) == one, now_s)

    def _take(self, run_id: RunId, told: NodeReport, unchanged: bool, now_s: float) -> None:
        run = self._runs.get(run_id)
        if run is not None and unchanged:
            run.told_again(now_s, now_s + self._ahead_s)
            return
        try:
            record = told.record()
        except RecordError:
            return
        if run is None:
            run = self._runs[run_id] = ReportedRun(run_id.restarts)
        run.take(told.source, record, now_s + self._ahead_s, now_s)

    def _read_ended(self, folder: Path, names: Collection[str]) -> None:
        """Read the files that epilogs have left, and remove those that are stored or are not
        records."""
        named = ((name, parsed_file_name(name)) for name in names)
        files = {of[0]: folder / name for name, of in named if of and of[1] == PROGRESS_KIND}
        for run_id in self._stored & files.keys():
            files.pop(run_id).unlink(missing_ok=True)
        self._stored.clear()
        self._ended = {run_id: kept for run_id, kept in self._ended.items() if run_id in files}
        for run_id in sorted(files.keys() - self._ended.keys())[:ENDED_OF_A_LOOK]:
            try:
                self._ended[run_id] = decode(read_regular(files[run_id], RECORD_BYTES + 1))
            except (OSError, RecordError):
                files[run_id].unlink(missing_ok=True)
