"""One run of a job on one node, from start to end or requeue, and the files named after it."""

from __future__ import annotations

import re
from dataclasses import dataclass

TRAFFIC_KIND = "traffic"
GPUS_KIND = "gpus"
PROGRESS_KIND = "progress"
OUTPUT_KIND = "output"
"""Printed lines of the job that may show its progress."""

_RUN = r"([0-9]{1,10})\.([0-9]{1,10})\.([A-Za-z0-9_-][A-Za-z0-9._-]{0,254})"
_KINDS = "|".join((TRAFFIC_KIND, GPUS_KIND, PROGRESS_KIND, OUTPUT_KIND))
_RUN_NAME = re.compile(_RUN, re.ASCII)
_FILE_NAME = re.compile(rf"{_RUN}\.({_KINDS})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class RunId:
    """Identifies a run of a job, and the node on which it was seen."""

    job_id: int
    restarts: int
    node: str

    def file_name(self, kind: str) -> str:
        return f"{self}.{kind}"

    def __str__(self) -> str:
        return f"{self.job_id}.{self.restarts}.{self.node}"


def parsed_run(text: str) -> RunId | None:
    """Return the run that ``str`` of one names; None for any other text."""
    match = _RUN_NAME.fullmatch(text)
    return None if match is None else RunId(int(match[1]), int(match[2]), match[3])


def parsed_file_name(name: str) -> tuple[RunId, str] | None:
    """Return the run and the kind of a file from its name; None for any other file."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    return RunId(int(match[1]), int(match[2]), match[3]), match[4]
