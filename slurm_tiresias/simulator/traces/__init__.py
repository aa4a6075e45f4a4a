"""Recorded workloads: the formats, and the choice between them.

A format is a column layout or a module, with a test of a file's first line and a loader. Loaders
raise only ``TraceError``, whatever the file contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator.traces import (
    alibaba2020,
    alibaba2023,
    layouts,
    philly,
    reading,
    sacct,
    swf,
)
from slurm_tiresias.simulator.workload import Workload

AUTO = "auto"


class Format(Protocol):
    """A trace format; ``fits`` gets the first line that is not blank."""

    def fits(self, first_line: str) -> bool: ...

    def load(self, path: Path) -> Workload: ...


FORMATS: Mapping[str, Format] = {
    sacct.NAME: sacct,
    swf.NAME: swf,
    philly.NAME: philly,
    layouts.ITP.format: layouts.ITP,
    layouts.HELIOS.format: layouts.HELIOS,
    alibaba2020.NAME: alibaba2020,
    alibaba2023.NAME: alibaba2023,
    layouts.GENERIC.format: layouts.GENERIC,
}
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
