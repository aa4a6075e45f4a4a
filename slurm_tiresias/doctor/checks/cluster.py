"""The Slurm release, whether slurmctld answers, and the partitions, GPUs and clock."""

from __future__ import annotations

import json

from slurm_tiresias.doctor.checks.files import SLURM_CONF, TIRESIAS_TOML, known
from slurm_tiresias.doctor.finding import Finding, Mend, check, error, note, ok, warning
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.slurm import release
from slurm_tiresias.slurm.survey import Settings

CLOCKS_APART_S = 3.0
"""Clock difference from which the controller corrects times that squeue computed by its clock."""

MOST_NAMED = 4

COMPARED = (
    "AccountingStorageType",
    "CompleteWait",
    "JobFileAppend",
    "JobRequeue",
    "JobSubmitPlugins",
    "KillWait",
    "MaxJobCount",
    "MinJobAge",
    "PreemptMode",
    "PreemptType",
    "PriorityType",
    "ProctrackType",
    "SchedulerParameters",
    "SchedulerType",
    "SelectType",
)


@check()
def _slurmctld(seen: Seen) -> Finding:
    """The controller does everything through slurmctld."""
    if seen.running:
        return ok("slurmctld answers")
    why = seen.not_seen[0] if seen.not_seen else "no answer"
    return error(f"slurmctld does not answer this user here ({why})", do=("scontrol ping",))


@check()
def _release(seen: Seen) -> Finding:
    """Slurm's behaviour differs between releases."""
    if seen.release is None:
        return note("the release is not known", do=("scontrol --version",))
    this = f"Slurm {release.written(seen.release)}"
    if release.is_too_old(seen.release):
        return error(f"{this}, before {release.series(release.TESTED[0])}")
    if release.is_tested(seen.release):
        return ok(this)
    return note(f"{this}: tested were {', '.join(map(release.series, release.TESTED))}")


@check("settings")
def _running_as_written(seen: Seen) -> Finding | None:
    """Lines in slurm.conf have no effect before slurmctld has read them."""
    if not seen.running or seen.written is None:
        return None
    here = known(seen)
    differing = [key for key in COMPARED if _differs(key, seen.written, here)]
    if not differing:
        return ok("slurmctld goes by what slurm.conf says")
    return warning(
        f"slurm.conf differs from the settings of slurmctld: {', '.join(differing)}",
        do=("scontrol reconfigure", "systemctl restart slurmctld    # if that is not enough"),
    )


def _differs(key: str, file: Settings, running: Settings) -> bool:
    """Whether the file sets this key to another value, ignoring differences in units and order."""
    if key.lower() not in file.values:
        return False
    if file.number(key) is not None:
        return file.number(key) != running.number(key)
    return sorted(file.word(key).split(",")) != sorted(running.word(key).split(","))


@check()
def _config(seen: Seen) -> Finding:
    """The configuration says which jobs are managed, and how."""
    if seen.config_error:
        return error(seen.config_error, do=(f"tiresias-slurm config check {seen.config_file}",))
    if seen.config_there:
        return ok(f"{seen.config_file}, {seen.config.controller.mode} mode")
    return note(
        f"{seen.config_file} is not there: the defaults are taken", do=("tiresias-slurm init",)
    )


@check("partitions")
def _partitions(seen: Seen) -> Finding:
    """The controller does not start if a managed partition does not exist."""
    wanted, there = seen.config.manage.partitions, seen.partitions or ()
    missing = set(wanted) - {partition.name for partition in there}
    with_gpus = [partition.name for partition in there if seen.gpus_of(partition)]
    if not missing:
        return ok(f"managed: {', '.join(wanted)}")
    names = ", ".join(json.dumps(name) for name in with_gpus or [p.name for p in there])
    problem = f"there is no partition {', '.join(sorted(missing))}"
    # Without a configuration file, the missing partition comes from a default.
    say = error if seen.config_there else note
    return say(problem, Mend(TIRESIAS_TOML, "partitions", f"[{names}]", section="[manage]"))


@check("partitions", "nodes")
def _gpus(seen: Seen) -> Finding | None:
    """Only jobs with GPUs are managed."""
    if not seen.managed:
        return None
    nodes = seen.managed_nodes
    without = [node.name for node in nodes if not node.total.gpu_count]
    gpus = sum(node.total.gpu_count for node in nodes)
    if not gpus:
        return error(
            "no node of the managed partitions has GPUs",
            Mend(SLURM_CONF, "GresTypes", "gpu"),
            do=("add Gres=gpu:NUMBER to their NodeName lines, and gres.conf (man gres.conf)",),
        )
    kinds: dict[str, int] = {}
    for node in nodes:
        for kind, number in node.total.gpus.items():
            kinds[kind] = kinds.get(kind, 0) + number
    types = ", ".join(f"{number} {kind or 'of no type'}" for kind, number in sorted(kinds.items()))
    found = f"{gpus} GPUs on {len(nodes) - len(without)} nodes ({types})"
    if not without:
        return ok(found)
    return note(f"{found}; {len(without)} nodes without ({_some(without)})")


@check("partitions", "nodes", "settings")
def _cloud_nodes(seen: Seen) -> Finding | None:
    """Before 23.02, Slurm shows no powered-down cloud node unless PrivateData says so: jobs are
    preempted although such a node could be booted."""
    private = known(seen).words("PrivateData")
    if not seen.managed or not seen.differences.hides_cloud_nodes:
        return None
    shown = {node.name for node in seen.nodes or ()}
    hidden = sorted({name for partition in seen.managed for name in partition.nodes} - shown)
    if not hidden or "cloud" in map(str.lower, private):
        return ok("no cloud node is hidden")
    words = [word for word in private if word.lower() != "none"]
    return warning(
        f"Slurm does not show {_some(hidden)}",
        Mend(SLURM_CONF, "PrivateData", ",".join([*words, "cloud"])),
    )


@check("partitions")
def _higher_partitions(seen: Seen) -> Finding | None:
    """Slurm serves a partition with a higher PriorityTier first, whatever the priorities of the
    tiers; and nothing is preempted on nodes that a job of such a partition waits for."""
    if not seen.managed:
        return None
    above = [
        f"{p.name} (PriorityTier={p.priority_tier})"
        for p in seen.partitions or ()
        if any(p.priority_tier > m.priority_tier and p.nodes & m.nodes for m in seen.managed)
    ]
    if not above:
        return ok("no other partition takes the nodes first")
    return note(f"on the same nodes, and before other managed jobs: {_some(above)}")


@check("clock_ahead_s")
def _clock(seen: Seen) -> Finding:
    """Run times come from slurmctld's clock. The controller corrects for a difference, but a
    preempted job may then wait for Slurm's own requeue delay."""
    ahead_s = seen.clock_ahead_s or 0.0
    if abs(ahead_s) <= CLOCKS_APART_S:
        return ok("this host's clock agrees with slurmctld's")
    which = "ahead of" if ahead_s > 0 else "behind"
    return warning(
        f"slurmctld's clock is {abs(ahead_s):.0f} s {which} this host's",
        do=("timedatectl set-ntp true    # on both hosts",),
    )


def _some(names: list[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
