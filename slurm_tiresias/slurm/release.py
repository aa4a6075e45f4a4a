"""Slurm's releases, and everything in which they differ as far as this program is concerned.

Nowhere else is a release asked for. What only looks different, as the spelling of GPUs, is read in
every spelling by ``notation.py`` and needs no entry here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_tiresias.errors import SlurmAnswerError

Version = tuple[int, int, int]

TESTED = ((22, 5), (24, 11), (26, 5))
"""Those that the tests are run on, from the oldest to the newest. Before the oldest preempt/qos
knows no WITHIN, and squeue lacks fields."""

UNKNOWN: Version = (0, 0, 0)
"""A release of which nothing is taken for granted."""

_SHARES_WITH_ALL = frozenset({"OK", "YES", "NO", "(null)", "N/A", ""})

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
    limits_requests: bool
    """Whether slurmctld can limit how much each user asks (rl_enable)."""
    signals_children: bool
    """Whether cgroup.conf can have SIGTERM sent to more than the batch shell."""
    backfill_keeps_updates: bool
    """Whether bf_continue leaves alone priorities that are written while backfill pauses."""
    shows_slurmdbd: bool
    """Whether ``sacctmgr show configuration`` has slurmdbd's own PrivateData: since 26.05 it prints
    that of slurm.conf twice (src/api/extra_get_functions.c)."""
    priority_type: str
    """PriorityType where slurm.conf has none."""

    def sharing(self, word: str) -> str:
        """What the exclusive column says, in the words of 22.05: NO, OK, or with whom."""
        if word == self.exclusive_word:
            return "NO"
        return "OK" if word in _SHARES_WITH_ALL else word

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
        limits_requests=series >= (23, 2),
        signals_children=series >= (23, 11),
        backfill_keeps_updates=version >= (26, 5, 3),
        shows_slurmdbd=series < (26, 5),
        priority_type="priority/multifactor" if series >= (24, 11) else "priority/basic",
    )


def is_too_old(version: Version) -> bool:
    return version[:2] < TESTED[0]


def is_tested(version: Version) -> bool:
    return version[:2] in TESTED


def warning_about(version: Version) -> str:
    """What an admin should know of running on this release; empty where all tests have."""
    if is_too_old(version):
        return (
            f"Slurm {written(version)} is older than {series(TESTED[0])}, the oldest that this "
            "version works with"
        )
    if version[:2] > TESTED[-1]:
        return (
            f"Slurm {written(version)} is newer than {series(TESTED[-1])}, the newest that this "
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


def series(number: tuple[int, int]) -> str:
    """Year and month as Slurm writes them."""
    return f"{number[0]:02d}.{number[1]:02d}"
