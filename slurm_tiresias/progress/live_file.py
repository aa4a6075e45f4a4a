"""The file in which a node tells the controller how far its jobs are.

Each line is one run of a job: its name, where the record comes from, and the record as the job
wrote it; or its name, the word "saved", and when it last saved by its folder of checkpoints. The
node passes on what it has checked, and the controller checks it again: users' programs say it. A
node writes its file anew every minute also where nothing has changed, as a sign of life.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from slurm_tiresias.job.record import RECORD_BYTES, Record, RecordError, decode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.profiler.run_id import RunId, parsed_run

SUFFIX = ".live"
MOST_RUNS = 4096
"""Runs of jobs on one node that are told of; far more than run on any."""

MOST_BYTES = MOST_RUNS * (RECORD_BYTES + 256)

_FIRST_LINE = b"tiresias-live 1\n"
_SAVED = b"saved"
_TIME = re.compile(rb"[0-9]{1,11}\.[0-9]{3}")
NO_SAVES: Mapping[RunId, float] = MappingProxyType({})
_SOURCES = {source.value.encode(): source for source in ProgressSource}


@dataclass(frozen=True, slots=True)
class Told:
    """What a node tells of one run: where from, and the record's bytes without their padding."""

    source: ProgressSource
    content: bytes

    def record(self) -> Record:
        """The record in it; raises ``RecordError``."""
        if len(self.content) >= RECORD_BYTES:
            raise RecordError("too long")
        return decode(self.content.ljust(RECORD_BYTES - 1) + b"\n")


def text_of(runs: Mapping[RunId, Told], saves: Mapping[RunId, float] = NO_SAVES) -> bytes:
    """The content of the file; ``saves`` is when runs last saved, by their folders."""
    lines = (
        b"%s %s %s\n" % (str(run_id).encode(), told.source.value.encode(), told.content)
        for run_id, told in sorted(runs.items())[:MOST_RUNS]
    )
    saved = (
        b"%s %s %.3f\n" % (str(run_id).encode(), _SAVED, saved_s)
        for run_id, saved_s in sorted(saves.items())[:MOST_RUNS]
    )
    return _FIRST_LINE + b"".join(lines) + b"".join(saved)


def parse(content: bytes) -> dict[RunId, Told]:
    """What the file says of each run; lines that are not understood are left out.

    Raises ``ValueError`` for what is no such file.
    """
    if len(content) > MOST_BYTES or not content.startswith(_FIRST_LINE):
        raise ValueError("not a file of a node's progress")
    return dict(_told(content[len(_FIRST_LINE) :].split(b"\n")))


def saves_in(content: bytes) -> dict[RunId, float]:
    """When runs last saved, by the file; lines of another kind are left out."""
    saves = {}
    for line in content.split(b"\n"):
        name, _, rest = line.partition(b" ")
        word, _, text = rest.partition(b" ")
        run_id = _run_named(name) if word == _SAVED else None
        if run_id is not None and _TIME.fullmatch(text):
            saves[run_id] = float(text)
    return saves


@lru_cache(maxsize=1 << 16)
def _run_named(name: bytes) -> RunId | None:
    return parsed_run(name.decode("ascii", "replace"))


def _told(lines: Iterable[bytes]) -> Iterable[tuple[RunId, Told]]:
    for line in lines:
        name, _, rest = line.partition(b" ")
        word, _, record = rest.partition(b" ")
        run_id, source = _run_named(name), _SOURCES.get(word)
        if run_id and source:
            yield run_id, Told(source, record)
