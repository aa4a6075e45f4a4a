"""Builds a ``Run`` from the lines that the watchers print. Text that comes from jobs is
untrusted."""

from __future__ import annotations

import json
import re
import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurm_tiresias.drill.observed import Disposition, Process, Run, Save, Survivor
from slurm_tiresias.job.record import DONE, SAVING, Record, RecordError, decode
from slurm_tiresias.model import JobProgress, ProgressSource
from slurm_tiresias.progress.heard import Run as Reports
from slurm_tiresias.progress.output_lines import Level, counts_in
from slurm_tiresias.progress.saving import has_saved_since

MOST_PROCESSES = 4096
MOST_STEP = 10**12
MOST_LAST_LINES = 12
JUST_BEFORE_S = 0.2
MOST_BLOCKED = 20
"""A process that blocks more signals than this is just about to start another."""
SIGNALS = (signal.SIGTERM, *(signal.Signals(n) for n in range(1, 32) if n not in (9, 15, 19)))

_STEP = re.compile(
    r"(?i)\b(?:global[_ ]?)?(?:steps?|iter(?:ation)?s?|batch|updates?)\b"
    r"[\s:=#\[(]{0,4}(\d{1,12})(?!\d|\.\d)"
)
_EPOCH = re.compile(r"(?i)\bepochs?\b[\s:=#\[(]{0,4}(\d{1,12})(?!\d|\.\d)")
_OF_SLURM = re.compile(r"(?:slurmstepd|srun)[\w-]*: ")
_OF_THE_LIBRARY = re.compile(r"(?:\S*/)?squeue --noheader (?:--all )?--jobs=")
"""Questions of slurm_tiresias.job: they are no part of the training."""
_RESUME = re.compile(
    r"(?i)\b(?:resum\w*|restor\w*|load(?:ed|ing)|continu\w*|begins?|starts?|started|starting"
    r"|from)\b.{0,60}?\b(?:steps?|iter(?:ation)?s?|epochs?)\b[\s:=#]{0,3}(\d{1,12})"
)
_SAVING = re.compile(r"(?i)\b(?:saving|writing)\b")
_SAVED = re.compile(r"(?i)\b(?:saved|wrote|written|checkpointed)\b")

_LOG = re.compile(r"\.(?:log|out|err|txt|csv|tsv|jsonl)$", re.IGNORECASE)
_TRACKERS = (
    ("wandb", re.compile(r"(?:^|/)wandb/(?:offline-)?run-\d{8}_\d{6}-([A-Za-z0-9_-]{1,64})/")),
    ("mlflow", re.compile(r"(?:^|/)mlruns/[^/]{1,64}/([0-9a-f]{32})/")),
    ("tensorboard", re.compile(r"^(.{1,300})/events\.out\.tfevents\.[^/]*$")),
    ("lightning", re.compile(r"((?:^|.*/)lightning_logs/version_\d+)/")),
)
"""The files of experiment trackers, and the field that identifies the tracker's run."""


@dataclass
class _OpenFile:
    began_s: float
    pid: int


class RunJournal:
    """One run, as reported by its watchers."""

    def __init__(self, number: int) -> None:
        self._run = Run(number)
        self._processes: dict[tuple[str, int, int], Process] = {}
        self._current: dict[tuple[str, int], tuple[str, int, int]] = {}
        self._former: dict[tuple[str, int, int], tuple[float, Mapping[int, Disposition]]] = {}
        self._changed_s: dict[tuple[str, int, int], float] = {}
        self._has_ended = False
        self._below = False
        """Whether SIGTERM also reached a child of a watcher."""
        self._hertz = 100.0
        self._behind_s: float | None = None
        self._record: Record | None = None
        self._reports = Reports(number)
        self._lines_steps: list[tuple[float, int]] = []
        self._record_steps: list[tuple[float, int]] = []
        self._said_resumed: int | None = None
        self._saves: dict[str, list[Save]] = {"record": [], "line": [], "file": []}
        self._open: dict[str, _OpenFile] = {}
        self._logs: set[str] = set()
        self._trackers: set[tuple[str, str]] = set()
        self.survivors: list[Survivor] = []
        self.nodes_up: set[str] = set()
        self.last_lines: deque[str] = deque(maxlen=MOST_LAST_LINES)

    # Conditions that the drill waits for

    @property
    def moves(self) -> int:
        """How many different steps were seen in this run."""
        return len({step for _, step in self._record_steps or self._lines_steps})

    @property
    def has_resumed(self) -> bool:
        """Whether the step at which it began is known."""
        return self.run().resumed_step is not None

    @property
    def has_processes(self) -> bool:
        """Whether any process of the job was seen."""
        return bool(self._processes)

    @property
    def progress(self) -> JobProgress | None:
        """The run's reports, by the clock of its node; None before the first report."""
        return self._reports.progress if self._record else None

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
        if self._has_ended or self._run.term_s is None:
            return
        at_s = self.node_s(received_s)
        self._run = replace(self._run, killed=True)
        for key in self._current.values():
            self._processes[key] = replace(self._processes[key], gone_s=at_s)
        self._current.clear()

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
                self._count_ticks(node, said["ticks"])
                self._as_they_were(node, float(said["got_s"]))
            case "signal-below" if said["signal"] == signal.SIGTERM:
                self._below = True
            case "signalled-again":
                self._run = replace(self._run, again_s=at_s)
            case "record":
                self._report(at_s, str(said["text"]))
            case "line":
                self._line(at_s, str(said["text"]))
            case "output-emptied":
                self._run = replace(self._run, output_emptied=True)
            case "opened":
                self._opened(node, at_s, said)
            case "closed":
                self._closed(at_s, said)
            case "file":
                self._file(at_s, str(said["path"]), bool(said["again"]), bool(said["grows"]))
            case "end":
                self._has_ended = True
            case "survivor":
                one = Survivor(int(said["run"]), node, int(said["pid"]), str(said["command"]))
                self.survivors.append(one)
            case "gpu-memory":
                self.survivors = [
                    replace(one, gpu_bytes=one.gpu_bytes + int(said["bytes"]))
                    if (one.node, one.pid) == (node, said["pid"])
                    else one
                    for one in self.survivors
                ]

    def _process(self, node: str, at_s: float, said: Mapping[str, Any]) -> None:
        key = node, int(said["pid"]), int(said["start"])
        if _OF_THE_LIBRARY.match(str(said["command"])):
            # It was seen as its parent's copy if it was seen before its exec.
            self._processes.pop(key, None)
            self._current.pop((node, key[1]), None)
            return
        if key not in self._processes and len(self._processes) >= MOST_PROCESSES:
            return
        masks = [int(str(said.get(name, "0")), 16) for name in ("SigCgt", "SigIgn", "SigBlk")]
        known = self._processes.get(key)
        process = Process(
            node=node,
            pid=key[1],
            start=key[2],
            parent=int(said["parent"]),
            command=str(said["command"]),
            direct=bool(said["direct"]),
            orphaned=bool(said["orphaned"]),
            dispositions={int(number): _disposition(number, *masks) for number in SIGNALS},
        )
        if known is not None:
            # Only what it did with signals when they came counts, not what it did while exiting.
            keep = self._run.term_s is not None
            if not keep:
                self._former[key] = (self._changed_s.get(key, 0.0), known.dispositions)
            if process.command == known.command and not keep:
                # While it waits for a blocked signal (sigwait) the kernel shows it as not blocked.
                waits = {
                    number: Disposition.BLOCKED
                    for number, does in known.dispositions.items()
                    if does is Disposition.BLOCKED
                }
                process = replace(process, dispositions={**process.dispositions, **waits})
            process = replace(
                process,
                cpu_s=known.cpu_s,
                reports=known.reports,
                direct=known.direct,
                parent=known.parent,
                orphaned=known.orphaned or process.orphaned,
                dispositions=known.dispositions if keep else process.dispositions,
            )
        self._processes[key] = process
        self._current[node, key[1]] = key
        if self._run.term_s is None:
            self._changed_s[key] = at_s

    def _as_they_were(self, node: str, at_s: float) -> None:
        """Restore what processes looked like just before a signal, since a handler may change it.

        Slurm signals the job's steps one after the other, the watcher's perhaps last.
        """
        for key, changed_s in self._changed_s.items():
            if key[0] == node and changed_s > at_s - JUST_BEFORE_S and key in self._former:
                dispositions = self._former[key][1]
                self._processes[key] = replace(self._processes[key], dispositions=dispositions)

    def _gone(self, node: str, at_s: float, said: Mapping[str, Any]) -> None:
        key = self._current.pop((node, int(said["pid"])), None)
        if key is not None:
            cpu_s = float(said["ticks"]) / self._hertz
            self._processes[key] = replace(self._processes[key], gone_s=at_s, cpu_s=cpu_s)

    def _count_ticks(self, node: str, ticks: Mapping[str, float]) -> None:
        for pid, count in ticks.items():
            key = self._current.get((node, int(pid)))
            if key is not None:
                cpu_s = float(count) / self._hertz
                self._processes[key] = replace(self._processes[key], cpu_s=cpu_s)

    def _report(self, at_s: float, text: str) -> None:
        try:
            record = decode(text.strip().encode().ljust(511) + b"\n")
        except (RecordError, UnicodeEncodeError):
            return
        last, self._record = self._record, record
        self._reports.take(ProgressSource.REPORTS, record, at_s, at_s)
        self._note_answer(at_s)
        self._record_steps.append((at_s, record.step))
        del self._record_steps[2:-2]
        saves = self._saves["record"]
        if record.state == SAVING and (not saves or saves[-1].ended_s is not None):
            saves.append(Save(record.step, record.at_s, None))
        if record.saved_s is not None and (last is None or last.saved_s != record.saved_s):
            begun = saves.pop() if saves and saves[-1].ended_s is None else None
            began_s = begun.began_s if begun else None
            saves.append(Save(record.saved_step, began_s, record.saved_s))

    def _note_answer(self, at_s: float) -> None:
        run = self._run
        waits = run.signal_s is not None and run.answered_s is None and run.requeued_s is None
        if waits and has_saved_since(self.progress, run.number, run.signal_s or 0.0):
            self._run = replace(run, answered_s=at_s)

    def _line(self, at_s: float, text: str) -> None:
        self.last_lines.append(text)
        if _OF_SLURM.match(text):
            return
        step = _step_in(text)
        saves = self._saves["line"]
        if _SAVED.search(text):
            begun = saves.pop() if saves and saves[-1].ended_s is None else None
            known = step if step is not None or begun is None else begun.step
            saves.append(Save(known, begun.began_s if begun else None, at_s))
        elif _SAVING.search(text):
            saves.append(Save(step, at_s, None))
        elif resumed := _RESUME.search(text):
            if self._said_resumed is None and not self._lines_steps:
                self._said_resumed = int(resumed[1])
        elif step is not None and step <= MOST_STEP:
            self._lines_steps.append((at_s, step))
            del self._lines_steps[200:-200]

    def _opened(self, node: str, at_s: float, said: Mapping[str, Any]) -> None:
        pid = int(said["pid"])
        if said["progress"]:
            key = self._current.get((node, pid))
            if key is not None:
                self._processes[key] = replace(self._processes[key], reports=True)
            return
        self._open[str(said["path"])] = _OpenFile(at_s, pid)

    def _closed(self, at_s: float, said: Mapping[str, Any]) -> None:
        opened = self._open.pop(str(said["path"]), None)
        if opened is not None:
            ended_s = at_s if said["there"] else None
            self._saves["file"].append(Save(None, opened.began_s, ended_s))

    def _file(self, at_s: float, path: str, again: bool, grows: bool) -> None:
        for tracker, pattern in _TRACKERS:
            if found := pattern.search(path):
                self._trackers.add((tracker, found[1]))
                return
        if _LOG.search(path):
            # A file that is written in one go, such as a marker in a checkpoint, is not a log.
            if grows:
                self._logs.add(path)
        elif again:
            self._saves["file"].append(Save(None, None, at_s))

    # Results

    def run(self) -> Run:
        """Return the run as far as it is known."""
        steps = self._record_steps or self._lines_steps
        record = self._record
        first = steps[0] if steps else None
        resumed, guess = self._said_resumed, False
        if record is not None:
            resumed = record.resumed_step
            if resumed is None:
                resumed, guess = record.first_step, True
        elif resumed is None and first is not None:
            resumed, guess = max(0, first[1] - 1), True
        moved = next((one for one in steps if resumed is None or one[1] > resumed), None)
        gone = [one.gone_s for one in self._processes.values() if one.gone_s is not None]
        whole = bool(gone) and not self._current
        return replace(
            self._run,
            processes=tuple(self._processes.values()),
            reaches_all=self._below or self._run.term_s is None,
            last_gone_s=max(gone) if whole else None,
            resumed_step=resumed,
            resume_is_guess=guess,
            first_step=moved[1] if moved else None,
            first_step_s=moved[0] if moved else None,
            last_step=max((step for _, step in steps), default=None),
            saves=self._known_saves(),
            logs=frozenset(self._logs),
            trackers=frozenset(self._trackers),
            finished=record is not None and record.state == DONE,
        )

    def _known_saves(self) -> tuple[Save, ...]:
        """Return the saves, from the most reliable source."""
        for source in ("record", "line"):
            if self._saves[source]:
                return tuple(self._saves[source])
        told_s = self._run.told_s
        under_way = [
            Save(None, one.began_s, None)
            for one in self._open.values()
            if told_s is not None and one.began_s >= told_s
        ]
        known = [
            save
            for save in self._saves["file"]
            if save.ended_s is not None
            or (told_s is not None and save.began_s is not None and save.began_s >= told_s)
        ]
        return (*known, *under_way)


def _step_in(text: str) -> int | None:
    if found := _STEP.search(text) or _EPOCH.search(text):
        return int(found[1])
    counts = [one for one in counts_in(text.encode()) if one.level is Level.STEP]
    return counts[-1].step if counts else None


def _disposition(number: int, caught: int, ignored: int, blocked: int) -> Disposition:
    bit = 1 << (number - 1)
    if blocked & bit and blocked.bit_count() <= MOST_BLOCKED:
        return Disposition.BLOCKED
    if caught & bit:
        return Disposition.HANDLER
    return Disposition.IGNORED if ignored & bit else Disposition.DEFAULT
