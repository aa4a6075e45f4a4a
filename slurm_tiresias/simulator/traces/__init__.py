"""Recorded workloads: one module per format, and the choice between them.

A format has a name, a test of a file's first line, and a loader. Loaders raise only
``TraceError``, whatever the file contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator.traces import (
    alibaba2020,
    alibaba2023,
    generic,
    helios,
    itp,
    philly,
    reading,
    sacct,
    swf,
)
from slurm_tiresias.simulator.workload import Workload

AUTO = "auto"


class Format(Protocol):
    """A module for a trace format; ``fits`` gets the first line that is not blank."""

    NAME: str

    def fits(self, first_line: str) -> bool: ...

    def load(self, path: Path) -> Workload: ...


_FORMATS: Iterable[Format] = (
    *(sacct, swf, philly, itp, helios, alibaba2020, alibaba2023, generic),
)
FORMATS: Mapping[str, Format] = {module.NAME: module for module in _FORMATS}
"""Formats by name, in the order in which they are tried; the most general one is last."""


def load_trace(path: Path, format: str = AUTO) -> Workload:  # noqa: A002
    """Load the jobs of a recorded trace.

    Raises ``UsageError`` for an unknown format and ``TraceError`` for an invalid file.
    """
    name = sniff(path) if format == AUTO else format
    if name not in FORMATS:
        raise UsageError(
            f"there is no trace format {name!r}", f"choose among {', '.join([AUTO, *FORMATS])}"
        )
    return FORMATS[name].load(path)


def sniff(path: Path) -> str:
    """Return the name of the format of a file or a folder of files."""
    if path.is_dir():
        return alibaba2020.NAME
    line, first = reading.first_line(path)
    for name, known in FORMATS.items():
        if known.fits(first):
            return name
    raise reading.refusal(
        path,
        line,
        "the beginning matches no known trace format",
        f"give a header line that names the columns, or say which of {', '.join(FORMATS)} it is",
    )
