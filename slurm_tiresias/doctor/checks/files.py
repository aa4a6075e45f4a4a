"""Constructors of ``Mend`` for each file that an administrator edits, by its usual name."""

from __future__ import annotations

from slurm_tiresias.doctor.finding import Mend
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.slurm.survey import Settings

SLURM_CONF = "slurm.conf"
CGROUP_CONF = "cgroup.conf"
PLUGSTACK_CONF = "plugstack.conf"
JOB_SUBMIT = "job_submit.lua"
TIRESIAS_TOML = "tiresias.toml"
UNIT = "tiresias-slurm.service"

SCHEDULER = "SchedulerParameters"


def slurm_conf(key: str, value: str) -> Mend:
    """Set this option of slurm.conf to this value."""
    return Mend(SLURM_CONF, key, value)


def scheduler(add: str = "", drop: str = "") -> Mend:
    """Add or drop a word of SchedulerParameters; an added word replaces one of the same name."""
    gone = drop or add.partition("=")[0]
    return Mend(SLURM_CONF, SCHEDULER, add=(add,) if add else (), drop=(gone,))


def installing(name: str, to: str, mode: str = "644") -> tuple[str, ...]:
    """Return the commands that install a file of ours, to run before any setting names it."""
    return (
        "tiresias-slurm init    # writes it, for this cluster, into ./slurm-tiresias",
        f"install -D -m {mode} slurm-tiresias/{name} {to}",
    )


def known(seen: Seen) -> Settings:
    """Return the settings; for checks that run only if there are some."""
    if seen.settings is None:
        raise ValueError("this check needs settings")
    return seen.settings
