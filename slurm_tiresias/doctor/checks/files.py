"""The files that a mend is written into, by the names that people know them by."""

from __future__ import annotations

from slurm_tiresias.doctor.finding import Mend
from slurm_tiresias.doctor.seen import Seen, Settings

SLURM_CONF = "slurm.conf"
CGROUP_CONF = "cgroup.conf"
PLUGSTACK_CONF = "plugstack.conf"
JOB_SUBMIT = "job_submit.lua"
TIRESIAS_TOML = "tiresias.toml"
UNIT = "tiresias-slurm.service"

SCHEDULER = "SchedulerParameters"


def slurm_conf(key: str, value: str) -> Mend:
    """This setting of slurm.conf gets this value."""
    return Mend(SLURM_CONF, key, value)


def scheduler(add: str = "", drop: str = "") -> Mend:
    """SchedulerParameters gain one word, or lose one; a word replaces one of its name."""
    gone = drop or add.partition("=")[0]
    return Mend(SLURM_CONF, SCHEDULER, add=(add,) if add else (), drop=(gone,))


def installing(name: str, to: str, mode: str = "644") -> tuple[str, ...]:
    """Commands that put a file of ours where it belongs; it must be there before it is named."""
    return (
        "tiresias-slurm init    # writes it, for this cluster, into ./slurm-tiresias",
        f"install -D -m {mode} slurm-tiresias/{name} {to}",
    )


def known(seen: Seen) -> Settings:
    """The settings, for checks that are made only where there are some."""
    if seen.settings is None:
        raise ValueError("this check needs settings")
    return seen.settings
