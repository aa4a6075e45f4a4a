"""The file in which a node reports the progress of its jobs to the controller.

Each line is about one run of a job: its name, the source of the record, and the record as the job
wrote it; or its name, the word "saved", and when it last saved according to its checkpoint folder.
The node and the controller both validate records, because users' programs write them. A node
rewrites its file every half minute even without changes, as a sign of life.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from slurm_tiresias.job.record import RECORD_BYTES, Record, RecordError, decode, padded
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.profiler.run_id import RunId, parsed_run

SUFFIX = ".live"
MOST_RUNS = 4096
"""Maximum number of runs reported by one node; far more than any node has."""

MOST_BYTES = MOST_RUNS * (RECORD_BYTES + 256)

_FIRST_LINE = b"tiresias-live 1\n"
_SAVED = b"saved"
_TIME = re.compile(rb"[0-9]{1,11}\.[0-9]{3}")
NO_SAVES: Mapping[RunId, float] = MappingProxyType({})
_SOURCES = {source.value.encode(): source for source in ProgressSource}


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's report on one run: its source, and the record's bytes without their padding."""

    source: ProgressSource
    content: bytes

    def record(self) -> Record:
        """The record in it; raises ``RecordError``."""
        if len(self.content) >= RECORD_BYTES:
            raise RecordError("too long")
        return decode(padded(self.content))


def text_of(runs: Mapping[RunId, NodeReport], saves: Mapping[RunId, float] = NO_SAVES) -> bytes:
    """Return the content of the file; ``saves`` is when runs last saved, by their checkpoint
    folders."""
    lines = (
        b"%s %s %s\n" % (str(run_id).encode(), told.source.value.encode(), told.content)
        for run_id, told in sorted(runs.items())[:MOST_RUNS]
    )
    saved = (
        b"%s %s %.3f\n" % (str(run_id).encode(), _SAVED, saved_s)
        for run_id, saved_s in sorted(saves.items())[:MOST_RUNS]
    )
    return _FIRST_LINE + b"".join(lines) + b"".join(saved)


def parse(content: bytes) -> tuple[dict[RunId, NodeReport], dict[RunId, float]]:
    """Parse the file into the report on each run, and when runs last saved; lines that cannot be
    parsed are left out.

    Raises ``ValueError`` if it is not such a file.
    """
    if len(content) > MOST_BYTES or not content.startswith(_FIRST_LINE):
        raise ValueError("not a file of a node's progress")
    told: dict[RunId, NodeReport] = {}
    saves: dict[RunId, float] = {}
    for line in content[len(_FIRST_LINE) :].split(b"\n"):
        name, _, rest = line.partition(b" ")
        word, _, text = rest.partition(b" ")
        run_id = _run_named(name)
        if run_id is None:
            continue
        if source := _SOURCES.get(word):
            told[run_id] = NodeReport(source, text)
        elif word == _SAVED and _TIME.fullmatch(text):
            saves[run_id] = float(text)
    return told, saves


@lru_cache(maxsize=1 << 16)
def _run_named(name: bytes) -> RunId | None:
    return parsed_run(name.decode("ascii", "replace"))
