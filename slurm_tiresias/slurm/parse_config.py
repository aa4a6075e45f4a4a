"""Parse ``scontrol show config`` into the facts about the cluster that do not change."""

from __future__ import annotations

import re

from slurm_tiresias.slurm import notation, release
from slurm_tiresias.slurm.protocol import Cluster

DEFAULT_CRED_EXPIRE_S = 120.0
"""slurm_cred.c, DEFAULT_EXPIRATION_WINDOW."""

HIDES_JOBS = frozenset({"job", "usage", "user", "account", "all"})
"""Kinds of PrivateData, in the singular, for which users are shown their own jobs only: job lists
also reveal users, their accounts and their usage."""

OF_SLURMDBD = "SlurmDBD configuration:"
"""The heading of slurmdbd's settings in sacctmgr's output, if slurmdbd has answered."""

_PRIVATE_DATA = re.compile(
    r"^[ \t]*PrivateData\s*=\s*([\w,]+)", re.ASCII | re.MULTILINE | re.IGNORECASE
)
_AS_OF = re.compile(r"^Configuration data as of (\d+)$", re.ASCII | re.MULTILINE)


def cluster(answer: str, now_s: float) -> Cluster:
    """Return the facts about the cluster from its configuration."""
    has = settings(answer)
    version = release.version_in(has.get("SLURM_VERSION", ""))
    return Cluster(
        name=_needed(has, "ClusterName"),
        version=version,
        priority_type=_needed(has, "PriorityType"),
        accounting=_needed(has, "AccountingStorageType") == "accounting_storage/slurmdbd",
        kill_wait_s=float(notation.whole(_needed(has, "KillWait").removesuffix(" sec"))),
        requeue_delay_s=requeue_delay_s(has, version),
        now_s=now_s,
        jobs_are_private=hides_jobs(answer),
        output_appended=has.get("JobFileAppend") == "1",
        slurm_conf=has.get("SLURM_CONF", ""),
    )


def hides_jobs(answer: str) -> bool:
    """Whether PrivateData hides other users' jobs. ``answer`` may be slurm.conf's settings, those
    and slurmdbd's as ``sacctmgr show configuration`` prints them, or slurmdbd.conf."""
    named = ",".join(match[1] for match in _PRIVATE_DATA.finditer(answer))
    return any(kind.lower().rstrip("s") in HIDES_JOBS for kind in named.split(","))


def clock_s(answer: str) -> float:
    """Return slurmctld's clock at the time of the answer, in whole seconds."""
    match = _AS_OF.search(answer)
    if match is None:
        raise notation.unreadable("no time", answer[:80])
    return notation.known_epoch(match[1])


def counts_gpus(answer: str) -> bool:
    """Whether Slurm counts GPUs (AccountingStorageTRES)."""
    tracked = settings(answer).get("AccountingStorageTRES", "").split(",")
    return "gres/gpu" in tracked


def counts_memory(answer: str) -> bool:
    """Whether Slurm allocates memory to jobs (CR_Core_Memory etc. in SelectTypeParameters)."""
    return "MEMORY" in settings(answer).get("SelectTypeParameters", "").upper()


def slurm_user_id(answer: str) -> int:
    """Return the uid of SlurmUser, from ``SlurmUser = slurm(64030)``."""
    printed = _needed(settings(answer), "SlurmUser")
    return notation.whole(printed.rpartition("(")[2].removesuffix(")"))


def settings(answer: str) -> dict[str, str]:
    """Return the ``Key = value`` lines; the first of equal keys wins."""
    found: dict[str, str] = {}
    for line in answer.splitlines():
        key, equals, value = line.partition(" = ")
        if equals:
            found.setdefault(key.strip(), value.strip())
    return found


def requeue_delay_s(has: dict[str, str], version: release.Version) -> float:
    """Return requeue_delay of SchedulerParameters if this release has it and it is set, else
    cred_expire of AuthInfo."""
    delay = _parameter(has.get("SchedulerParameters", ""), "requeue_delay")
    if delay is not None and release.of(version).has_requeue_delay:
        return delay
    expire = _parameter(has.get("AuthInfo", ""), "cred_expire")
    return DEFAULT_CRED_EXPIRE_S if expire is None else expire


def _parameter(parameters: str, name: str) -> float | None:
    for parameter in parameters.split(","):
        key, _, value = parameter.strip().partition("=")
        if key.lower() == name:
            return float(notation.whole(value))
    return None


def _needed(has: dict[str, str], key: str) -> str:
    if key not in has:
        raise notation.unreadable(f"no {key} in the configuration", ", ".join(list(has)[:3]))
    return has[key]
