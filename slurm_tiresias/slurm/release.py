"""Slurm's releases, and everything in which they differ as far as this program is concerned.

Nowhere else is a release asked for. What only looks different, as the spelling of GPUs, is read in
every spelling by ``text.py`` and needs no entry here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_tiresias.errors import SlurmAnswerError

Version = tuple[int, int, int]

OLDEST = (22, 5)
"""Before it preempt/qos knows no WITHIN, and squeue lacks fields."""

NEWEST = (26, 5)
"""The newest one that all tests have run on."""

_VERSION = re.compile(r"\b(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Release:
    """What this program does differently on one release of Slurm."""

    version: Version
    exclusive_column: str
    """squeue's column that tells whether a job has its nodes for itself."""
    exclusive_word: str
    """What stands there then."""
    has_requeue_delay: bool
    """Whether SchedulerParameters=requeue_delay bounds how long a requeued job waits."""

    @property
    def series(self) -> tuple[int, int]:
        """Year and month: what changes when Slurm does."""
        return self.version[0], self.version[1]


def of(version: Version) -> Release:
    """What is known of this release; a newer one is taken to be like the newest."""
    series = version[:2]
    has_exclusive = series >= (26, 5)
    return Release(
        version=version,
        exclusive_column="Exclusive" if has_exclusive else "OverSubscribe",
        exclusive_word="NODE" if has_exclusive else "NO",
        has_requeue_delay=series >= (25, 11),
    )


def warning_about(version: Version) -> str:
    """What an admin should know of running on this release; empty where all tests have."""
    series = version[:2]
    if series < OLDEST:
        return (
            f"Slurm {written(version)} is older than {_series(OLDEST)}, the oldest that this "
            "version works with"
        )
    if series > NEWEST:
        return (
            f"Slurm {written(version)} is newer than {_series(NEWEST)}, the newest that this "
            "version was tested with: it is treated like that one"
        )
    return ""


def version_in(printed: str) -> Version:
    """The version in ``22.05.8`` or ``slurm-wlm 22.05.8``; ``SlurmAnswerError`` where none is."""
    match = _VERSION.search(printed)
    if match is None:
        raise SlurmAnswerError(
            f"Slurm's answer has no release number: {printed[:80]!r}",
            "see what `squeue --version` and `scontrol show config` say",
        )
    return int(match[1]), int(match[2]), int(match[3])


def written(version: Version) -> str:
    """A version as Slurm writes it, with two digits for the month."""
    return f"{version[0]:02d}.{version[1]:02d}.{version[2]}"


def _series(series: tuple[int, int]) -> str:
    return f"{series[0]:02d}.{series[1]:02d}"
