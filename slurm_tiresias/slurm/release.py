"""Slurm's releases, and every difference between them that matters to this program.

No other module checks the release. Mere differences of notation, such as the spelling of GPUs, are
handled by ``notation.py``, which accepts every spelling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_tiresias.errors import SlurmAnswerError

Version = tuple[int, int, int]

TESTED = ((22, 5), (24, 11), (26, 5))
"""The releases that the tests run on, oldest first. Before the oldest, preempt/qos has no WITHIN,
and squeue lacks fields."""

UNKNOWN: Version = (0, 0, 0)
"""An unknown release, for which the most cautious behaviour is assumed."""

_SHARES_WITH_ALL = frozenset({"OK", "YES", "NO", "(null)", "N/A", ""})

_VERSION = re.compile(r"\b(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Release:
    """The properties of one release of Slurm that change what this program does."""

    version: Version
    exclusive_column: str
    """squeue's column that shows whether a job uses its nodes exclusively."""
    exclusive_word: str
    """The value of that column for an exclusive job."""
    segment_column: str
    """squeue's column for ``--segment``; "" if none shows it."""
    has_requeue_delay: bool
    """Whether SchedulerParameters=requeue_delay sets how long a requeued job waits."""
    limits_requests: bool
    """Whether slurmctld can limit each user's request rate (rl_enable)."""
    signals_children: bool
    """Whether cgroup.conf can make SIGTERM reach more than the batch shell."""
    backfill_keeps_updates: bool
    """Whether, with bf_continue, backfill keeps priorities written while it yields."""
    shows_slurmdbd: bool
    """Whether ``sacctmgr show configuration`` shows slurmdbd's own PrivateData: since 26.05 it
    prints that of slurm.conf twice (src/api/extra_get_functions.c)."""
    hides_cloud_nodes: bool
    """Whether powered-down nodes with State=CLOUD are shown only with PrivateData=cloud."""
    priority_type: str
    """The default of PriorityType in slurm.conf."""

    def sharing(self, word: str) -> str:
        """Translate a value of the exclusive column to 22.05's: NO, OK, or the kind of jobs that it
        shares with."""
        if word == self.exclusive_word:
            return "NO"
        return "OK" if word in _SHARES_WITH_ALL else word

    @property
    def series(self) -> tuple[int, int]:
        """Year and month, which identify a major release."""
        return self.version[0], self.version[1]


def of(version: Version) -> Release:
    """Return the properties of this release; unknown newer ones are treated like the newest."""
    series = version[:2]
    has_exclusive = series >= (26, 5)
    return Release(
        version=version,
        exclusive_column="Exclusive" if has_exclusive else "OverSubscribe",
        exclusive_word="NODE" if has_exclusive else "NO",
        segment_column="SegmentSize" if series >= (25, 5) else "",
        has_requeue_delay=series >= (25, 11),
        limits_requests=series >= (23, 2),
        signals_children=series >= (23, 11),
        backfill_keeps_updates=version >= (26, 5, 3),
        shows_slurmdbd=series < (26, 5),
        hides_cloud_nodes=series < (23, 2),
        priority_type="priority/multifactor" if series >= (24, 11) else "priority/basic",
    )


def is_too_old(version: Version) -> bool:
    return version[:2] < TESTED[0]


def is_tested(version: Version) -> bool:
    return version[:2] in TESTED


def warning_about(version: Version) -> str:
    """Return a warning if this release is too old or newer than the tested ones, else ""."""
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
    """Parse ``22.05.8`` or ``slurm-wlm 22.05.8``; raise ``SlurmAnswerError`` if there is none."""
    match = _VERSION.search(printed)
    if match is None:
        raise SlurmAnswerError(
            f"Slurm's answer has no release number: {printed[:80]!r}",
            "see what `squeue --version` and `scontrol show config` say",
        )
    return int(match[1]), int(match[2]), int(match[3])


def written(version: Version) -> str:
    """Format a version as Slurm does, with two digits for the month."""
    return f"{version[0]:02d}.{version[1]:02d}.{version[2]}"


def series(number: tuple[int, int]) -> str:
    """Format year and month as Slurm does."""
    return f"{number[0]:02d}.{number[1]:02d}"
