"""Builds a ``DrillRun`` from the lines that the watchers print. Text that comes from jobs is
untrusted."""

from __future__ import annotations

import json
import re
import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurm_tiresias.drill.counters import REPORTS, Counters, Point, point_of_save, points_in
from slurm_tiresias.drill.observed import Disposition, DrillRun, Process, Save, Survivor
from slurm_tiresias.job.record import DONE, SAVING, Record, RecordError, decode, padded
from slurm_tiresias.model import JobProgress, ProgressSource
from slurm_tiresias.progress.reported_run import ReportedRun
from slurm_tiresias.progress.saving import has_saved_since

MOST_PROCESSES = 4096
MOST_LAST_LINES = 12
MOST_SAVES = 200
JUST_BEFORE_S = 0.2
MOST_BLOCKED = 20
"""A process that blocks more signals than this is just about to start another."""
SIGNALS = (signal.SIGTERM, *(signal.Signals(n) for n in range(1, 32) if n not in (9, 15, 19)))

_OF_SLURM = re.compile(r"(?:slurmstepd|srun)[\w-]*: ")
_OF_THE_LIBRARY = re.compile(r"(?:\S*/)?squeue --noheader (?:--all )?--jobs=")
"""Questions of slurm_tiresias.job: they are no part of the training."""
_RESUMED = re.compile(r"(?i)\b(?:resum\w*|restor\w*|continu\w*)\b")
_BEGINS = re.compile(r"(?i)\b(?:load(?:ed|ing)|begins?|starts?|started|starting|from)\b")
_SAVING = re.compile(r"(?i)\b(?:saving|writing|being (?:saved|written))\b")
_SAVED = re.compile(
    r"(?i)(?<!\bbe )(?<!\bbeing )(?<!\bnot )\b(?:saved|wrote|written|checkpointed)\b"
)

_LOG = re.compile(r"\.(?:log|out|err|txt|csv|tsv|jsonl)$", re.IGNORECASE)
_TRACKERS = (
    ("wandb", re.compile(r"(?:^|/)wandb/(?:offline-)?run-\d{8}_\d{6}-([A-Za-z0-9_-]{1,64})/")),
    ("mlflow", re.compile(r"(?:^|/)mlruns/[^/]{1,64}/([0-9a-f]{32})/")),
    ("tensorboard", re.compile(r"^(.{1,300})/events\.out\.tfevents\.[^/]*$")),
    ("lightning", re.compile(r"((?:^|.*/)lightning_logs/version_\d+)/")),
)
"""The files of experiment trackers, and the field that identifies the tracker's run."""


class RunJournal:
    """One run, as reported by its watchers."""

    def __init__(self, number: int, job_id: str = "", folder: str = "") -> None:
        self._run = DrillRun(number)
        self._job_id = job_id
        self._folder = folder
        self._progress_file = ""
        self._processes: dict[tuple[str, int, int], Process] = {}
        self._current: dict[tuple[str, int], tuple[str, int, int]] = {}
        self._former: dict[tuple[str, int, int], tuple[float, Mapping[int, Disposition]]] = {}
        self._ended: set[str] = set()
        """The nodes whose watchers have announced their ends."""
        self._below = False
        """Whether SIGTERM also reached a child of a watcher."""
        self._hertz = 100.0
        self._behind_s: float | None = None
        self._record: Record | None = None
        self._reports = ReportedRun(number)
        self._counters = Counters()
        self._saves: dict[str, list[Save]] = {"record": [], "line": []}
        self._begun: tuple[tuple[Point, ...], float] = (), 0.0
        """What its last line said of the start of the run, and when."""
        self._form = ""
        """Its last line without the numbers."""
        self._moves_saved: int | None = None
        """How many steps it had made at its last announced save."""
        self._open: dict[str, float] = {}
        """The files that it has open for writing, and since when."""
        self._logs: set[str] = set()
        self._trackers: set[tuple[str, str]] = set()
        self.survivors: list[Survivor] = []
        self.nodes_up: set[str] = set()
        self.own_logs: set[str] = set()
        """The files of its own to which it has redirected its output."""
        self.last_lines: deque[str] = deque(maxlen=MOST_LAST_LINES)

    # Conditions that the drill waits for

    @property
    def moves(self) -> int:
        """How many steps were seen to be made in this run."""
        return self._counters.moves

    @property
    def would_lose_steps(self) -> bool:
        """Whether one step was made since its last save, or it has announced no save."""
        return self._moves_saved is None or self.moves == self._moves_saved + 1

    @property
    def has_resumed(self) -> bool:
        """Whether the run has said at which step it began."""
        return bool(self._counters.claimed)

    @property
    def moving(self) -> set[str]:
        """The counters that have moved."""
        return {name for name, one in self._counters.by_name.items() if one.moves}

    @property
    def lines_counted(self) -> set[str]:
        """The counters whose numbers were seen in the output."""
        return self._counters.by_name.keys() - {REPORTS}

    @property
    def has_processes(self) -> bool:
        """Whether any process of the job was seen."""
        return bool(self._processes)

    @property
    def progress(self) -> JobProgress | None:
        """The run's reports, by the clock of its node; None before the first report."""
        return self._reports.progress if self._record else None

    @property
    def by_plugin(self) -> bool:
        """Whether the site's plugin gave the run its progress file."""
        return bool(self._progress_file) and not self._progress_file.startswith(self._folder)

    @property
    def has_ended(self) -> bool:
        """Whether a watcher has announced its end."""
        return bool(self._ended)

    @property
    def has_answered(self) -> bool:
        """Whether its record has shown a save that answers the signal."""
        return self._run.answered_s is not None

    def node_s(self, at_s: float) -> float:
        """Return a time by the drill's clock as one by the clock of the nodes."""
        return at_s - (self._behind_s or 0.0)

    # Input

    def add(self, line: str, received_s: float) -> None:
        """Take in one line of a watcher; lines of any other origin are ignored."""
        try:
            said = json.loads(line)
            at_s = float(said["at_s"])
            self._behind_s = min(received_s - at_s, self._behind_s or received_s - at_s)
            self._take(str(said["kind"]), at_s, said)
        except (ValueError, KeyError, TypeError, RecursionError):
            return

    def signalled(self, number: int, sent_s: float, *, asked: bool = False) -> None:
        """Record that the checkpoint signal was sent, by the drill's clock."""
        self._run = replace(self._run, signal=number, signal_s=self.node_s(sent_s), asked=asked)

    def requeued(self, sent_s: float) -> None:
        """Record that the requeue was sent, by the drill's clock."""
        self._run = replace(self._run, requeued_s=self.node_s(sent_s))

    def over(self, received_s: float) -> None:
        """Record that no more lines will come.

        A watcher that has not announced its end was killed with the job's last processes.
        """
        if self._run.term_s is None:
            return
        at_s = self.node_s(received_s)
        for at, key in list(self._current.items()):
            if at[0] not in self._ended:
                self._change(key, gone_s=at_s)
                del self._current[at]

    def ended_itself(self, state: str, exit_code: str) -> None:
        """Record that the job ended before it was requeued."""
        self._run = replace(self._run, ended=state, exit_code=exit_code)

    def _take(self, kind: str, at_s: float, said: Mapping[str, Any]) -> None:
        node = str(said["node"])
        match kind:
            case "up":
                self.nodes_up.add(node)
                self._hertz = float(said["hertz"]) or 100.0
                started_s = self._run.started_s or at_s
                nodes = (*self._run.nodes, node)
                self._run = replace(self._run, nodes=nodes, started_s=started_s)
            case "process":
                self._process(node, at_s, said)
            case "gone":
                self._gone(node, at_s, said)
            case "signal" if said["signal"] == signal.SIGTERM and self._run.term_s is None:
                self._run = replace(self._run, term_s=float(said["got_s"]))
                for pid, ticks in said["ticks"].items():
                    key = self._current.get((node, int(pid)))
                    self._change(key, cpu_s=float(ticks) / self._hertz)
                self._as_they_were(node, float(said["got_s"]))
            case "signal-below" if said["signal"] == signal.SIGTERM:
                self._below = True
            case "signalled-again":
                self._run = replace(self._run, again_s=at_s)
            case "record":
                self._report(at_s, str(said["text"]))
            case "line":
                self._line(at_s, str(said["text"]))
            case "emptied":
                self._run = replace(self._run, emptied=str(said["path"]))
            case "log":
                self.own_logs.add(str(said["path"]))
            case "progress-file":
                self._progress_file = str(said["path"])
            case "opened" if said["progress"]:
                self._change(self._current.get((node, int(said["pid"]))), reports=True)
            case "opened":
                self._open[str(said["path"])] = at_s
            case "closed":
                self._open.pop(str(said["path"]), None)
            case "file":
                self._file(str(said["path"]), grows=bool(said["grows"]))
            case "file-gone" if self._run.since_s is not None:
                self._run = replace(self._run, deleted=str(said["path"]))
            case "end":
                self._ended.add(node)
            case "survivor":
                one = Survivor(int(said["run"]), node, int(said["pid"]), str(said["command"]))
                self.survivors.append(one)

    def _process(self, node: str, at_s: float, said: Mapping[str, Any]) -> None:
        key = node, int(said["pid"]), int(said["start"])
        command = str(said["command"])
        if _OF_THE_LIBRARY.match(command):
            # It was seen as its parent's copy if it was seen before its exec.
            self._processes.pop(key, None)
            self._current.pop((node, key[1]), None)
            return
        known = self._processes.get(key)
        if known is None and len(self._processes) >= MOST_PROCESSES:
            return
        masks = [int(str(said.get(name, "0")), 16) for name in ("SigCgt", "SigIgn", "SigBlk")]
        does = {int(number): _disposition(number, *masks) for number in SIGNALS}
        orphaned_s = at_s if said["orphaned"] else None
        if known is None:
            parent, direct = int(said["parent"]), bool(said["direct"])
            process = Process(*key, parent, command, direct, does, orphaned_s=orphaned_s)
        else:
            if self._run.term_s is not None:
                # Only what it did when signals came counts, not what it did while exiting.
                does = dict(known.dispositions)
            else:
                self._former[key] = at_s, known.dispositions
                if command == known.command:
                    # During sigwait the kernel shows a blocked signal as not blocked.
                    blocked = Disposition.BLOCKED
                    does |= {n: blocked for n, was in known.dispositions.items() if was is blocked}
            process = replace(
                known,
                command=command,
                orphaned_s=orphaned_s if known.orphaned_s is None else known.orphaned_s,
                dispositions=does,
            )
        self._processes[key] = process
        self._current[node, key[1]] = key

    def _as_they_were(self, node: str, at_s: float) -> None:
        """Restore what processes looked like just before a signal, since a handler may change it.

        Slurm signals the job's steps one after the other, the watcher's perhaps last.
        """
        for key, (changed_s, dispositions) in self._former.items():
            if key[0] == node and changed_s > at_s - JUST_BEFORE_S and key in self._processes:
                self._change(key, dispositions=dispositions)

    def _change(self, key: tuple[str, int, int] | None, **facts: Any) -> None:
        if key is not None:
            self._processes[key] = replace(self._processes[key], **facts)

    def _gone(self, node: str, at_s: float, said: Mapping[str, Any]) -> None:
        key = self._current.pop((node, int(said["pid"])), None)
        self._change(key, gone_s=at_s, cpu_s=float(said["ticks"]) / self._hertz)

    def _report(self, at_s: float, text: str) -> None:
        try:
            record = decode(padded(text.strip().encode()))
        except (RecordError, UnicodeEncodeError):
            return
        last, self._record = self._record, record
        self._reports.take(ProgressSource.REPORTS, record, at_s, at_s)
        run = self._run
        waits = run.signal_s is not None and run.answered_s is None and run.requeued_s is None
        # Without the plugin the controller would not see the answer.
        answers = waits and has_saved_since(self.progress, run.number, run.signal_s or 0.0)
        if answers and self.by_plugin:
            self._run = replace(run, answered_s=at_s)
        begins = Point(REPORTS, record.first_step)
        self._counters.add((begins,) if last is None else (), record.first_s)
        self._counters.add((Point(REPORTS, record.step),), at_s)
        if last is not None and record.first_step < last.first_step:
            self._counters.by_name[REPORTS].first = begins
        if last is None and record.resumed_step is not None:
            self._counters.claimed.append(Point(REPORTS, record.resumed_step))
        saves = self._saves["record"]
        if record.state == SAVING and (not saves or saves[-1].ended_s is not None):
            saves.append(Save(None, record.at_s, None, Point(REPORTS, record.step)))
        if record.saved_s is not None and (last is None or last.saved_s != record.saved_s):
            begun = saves.pop() if saves and saves[-1].ended_s is None else None
            began_s = begun.began_s if begun else None
            saved = None if record.saved_step is None else Point(REPORTS, record.saved_step)
            saves.append(Save(None, began_s, record.saved_s, saved))
            self._moves_saved = self.moves
        del saves[:-MOST_SAVES]

    def _line(self, at_s: float, text: str) -> None:
        self.last_lines.append(text)
        if _OF_SLURM.match(text):
            return
        saves, points = self._saves["line"], points_in(text)
        if _SAVED.search(text):
            begun = saves.pop() if saves and saves[-1].ended_s is None else None
            point = point_of_save(text, self._job_id) or (begun.point if begun else None)
            saves.append(Save(None, begun.began_s if begun else None, at_s, point))
            self._moves_saved = self.moves
        elif _SAVING.search(text):
            saves.append(Save(None, at_s, None, point_of_save(text, self._job_id)))
        else:
            self._points(text, points, at_s)
        del saves[:-MOST_SAVES]

    def _points(self, text: str, points: tuple[Point, ...], at_s: float) -> None:
        """Take in a line that names the start of the run, or a step."""
        former, self._form = self._form, re.sub(r"\d+", "#", text)
        recurs = self._form == former
        if _RESUMED.search(text):
            self._counters.claimed += () if self.moving else points
        elif _BEGINS.search(text) and not self.lines_counted and not recurs:
            self._counters.claimed += points
            self._begun = points, at_s
        else:
            if recurs:
                # The line before was of a step too.
                begun, begun_s = self._begun
                claimed = self._counters.claimed
                self._counters.claimed = claimed[: len(claimed) - len(begun)]
                self._counters.add(begun, begun_s)
            self._counters.add(points, at_s)
            self._begun = (), at_s

    def _file(self, path: str, *, grows: bool) -> None:
        if path == self._run.deleted:
            self._run = replace(self._run, deleted="")
        for tracker, pattern in _TRACKERS:
            if found := pattern.search(path):
                self._trackers.add((tracker, found[1]))
                return
        # A file that is written in one go, such as a marker in a checkpoint, is not a log.
        if _LOG.search(path) and grows:
            self._logs.add(path)

    # Results

    def run(self) -> DrillRun:
        """Return the run as far as it is known."""
        gone = [one.gone_s for one in self._processes.values() if one.gone_s is not None]
        whole = bool(gone) and not self._current
        since_s = self._run.since_s
        # The files that it was writing at its end.
        under_way = [
            Save(None, began_s, None)
            for began_s in self._open.values()
            if since_s is not None and began_s >= since_s
        ]
        return replace(
            self._run,
            processes=tuple(self._processes.values()),
            reaches_all=self._below or self._run.term_s is None,
            last_gone_s=max(gone) if whole else None,
            counters=dict(self._counters.by_name),
            claimed=tuple(self._counters.claimed),
            has_progress_file=bool(self._progress_file),
            by_plugin=self.by_plugin,
            saves=(*(self._saves["record"] or self._saves["line"]), *under_way),
            logs=frozenset(self._logs),
            trackers=frozenset(self._trackers),
            finished=self._record is not None and self._record.state == DONE,
        )


def _disposition(number: int, caught: int, ignored: int, blocked: int) -> Disposition:
    bit = 1 << (number - 1)
    if blocked & bit and blocked.bit_count() <= MOST_BLOCKED:
        return Disposition.BLOCKED
    if caught & bit:
        return Disposition.HANDLER
    return Disposition.IGNORED if ignored & bit else Disposition.DEFAULT
