"""On a node: reads the files in which jobs report, and forwards their content to the controller.

Jobs write to a file on their own node, which never hangs; only this service writes to the shared
folder, so that a file server that hangs delays no job.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from slurm_tiresias.job.record import RECORD_BYTES, RecordError, decode, encode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.owned_file import read_regular
from slurm_tiresias.profiler.node_folders import write_as_root_or_owner
from slurm_tiresias.profiler.run_id import OUTPUT_KIND, PROGRESS_KIND, RunId, parsed_file_name
from slurm_tiresias.progress.checkpoints import LIST_NAME, CheckpointFolders
from slurm_tiresias.progress.live_file import MOST_RUNS, SUFFIX, NodeReport, text_of
from slurm_tiresias.progress.output import FILE_BYTES, OutputProgress
from slurm_tiresias.warn_once import WarnOnce

FOLDER = "progress"
"""The subfolder of the shared folder for all progress reports; the controller creates it."""

SIGN_OF_LIFE_S = 30.0
"""How often the file is written if nothing has changed. A pause of a job counts only as far as its
node has told of it."""

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class NodeProgress:
    """Reports the progress of this node's jobs to the controller at each tick."""

    def __init__(self, run_dir: Path, collect_dir: Path, host: str | None = None) -> None:
        self._run_dir = run_dir
        # Several nodes of Slurm may share one host.
        name = _NOT_IN_A_NAME.sub("-", host or socket.gethostname()) or "node"
        self._path = collect_dir / FOLDER / f"{name}{SUFFIX}"
        self._outputs: dict[RunId, OutputProgress] = {}
        self._checkpoints = CheckpointFolders(collect_dir / FOLDER / LIST_NAME)
        self._answers: Mapping[RunId, float] = {}
        """The last request that each run had answered by a save, as of the last tick."""
        self._written: bytes | None = None
        self._written_s = 0.0
        self._warning = WarnOnce("the controller cannot be told how far jobs are for now")

    def has_news(self) -> bool:
        """Whether a job has answered a request to save since the last tick."""
        with suppress(OSError):
            return bool(self._answered().items() - self._answers.items())
        return False

    def tick(self, now_s: float, wall_s: float) -> None:
        """Read all files, and write the node's own file when that is due; both clocks in
        seconds."""
        try:
            found = _found(self._run_dir)
            told = self._read(found, wall_s)
            files = {
                run_id: self._run_dir / run_id.file_name(min(kinds))
                for run_id, kinds in found.items()
            }
            saves = self._checkpoints.saves(files, now_s)
            if told or saves or self._written is not None:
                self._write(text_of(told, saves), now_s)
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()

    def _write(self, content: bytes, now_s: float) -> None:
        unchanged = content == self._written
        if unchanged and now_s - self._written_s < SIGN_OF_LIFE_S:
            return
        self._written = None
        write_as_root_or_owner(self._path, content)
        self._written, self._written_s = content, now_s

    def _read(self, found: Mapping[RunId, set[str]], wall_s: float) -> Mapping[RunId, NodeReport]:
        told = {}
        self._answers = self._answered()
        for run_id in sorted(found)[:MOST_RUNS]:
            kinds = found[run_id]
            reported = PROGRESS_KIND in kinds and self._reported(run_id)
            printed = OUTPUT_KIND in kinds and self._printed(run_id, wall_s)
            # A program's own reports are better than its output.
            if one := reported or printed:
                told[run_id] = one
        self._outputs = {run_id: kept for run_id, kept in self._outputs.items() if run_id in found}
        return told

    def _answered(self) -> Mapping[RunId, float]:
        answers = {}
        for run_id in sorted(_found(self._run_dir))[:MOST_RUNS]:
            told = self._reported(run_id)
            answered_s = told.record().answered_s if told else None
            if answered_s is not None:
                answers[run_id] = answered_s
        return answers

    def _reported(self, run_id: RunId) -> NodeReport | None:
        content = _content(self._run_dir / run_id.file_name(PROGRESS_KIND), RECORD_BYTES)
        if content is None:
            return None
        try:
            decode(content)
        except RecordError:
            return None
        return NodeReport(ProgressSource.REPORTS, content.rstrip())

    def _printed(self, run_id: RunId, wall_s: float) -> NodeReport | None:
        content = _content(self._run_dir / run_id.file_name(OUTPUT_KIND), FILE_BYTES)
        if content is None:
            return None
        record = self._outputs.setdefault(run_id, OutputProgress()).update(content, wall_s)
        return (
            None if record is None else NodeReport(ProgressSource.OUTPUT, encode(record).rstrip())
        )


def _found(run_dir: Path) -> Mapping[RunId, set[str]]:
    """Return the runs that may report, with the kinds of their files."""
    runs: dict[RunId, set[str]] = {}
    with os.scandir(run_dir) as entries:
        for entry in entries:
            named = parsed_file_name(entry.name)
            if named is not None and named[1] in (PROGRESS_KIND, OUTPUT_KIND):
                runs.setdefault(named[0], set()).add(named[1])
    return runs


def _content(path: Path, size: int) -> bytes | None:
    """Read a job's file if it is as the prolog made it: of this size, and not all zero.

    Its owner can change everything else about it.
    """
    with suppress(OSError):
        content = read_regular(path, size + 1)
        return content if len(content) == size and content.strip(b"\0") else None
    return None
