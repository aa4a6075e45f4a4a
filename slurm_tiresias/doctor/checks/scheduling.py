"""Whether Slurm starts jobs soon, and in the order of the priorities that the controller sets."""

from __future__ import annotations

import re

from slurm_tiresias.controller.bands import BAND, SITE_FACTOR_BAND, TOP_TIER
from slurm_tiresias.doctor.checks.files import known, scheduler, slurm_conf
from slurm_tiresias.doctor.finding import Finding, check, error, note, ok, warning
from slurm_tiresias.doctor.seen import Seen

MULTIFACTOR = "priority/multifactor"
WEIGHTS = ("Age", "Assoc", "FairShare", "JobSize", "Partition", "QOS")
TRIED_AFTER_S = 3
"""Slurm's default for batch_sched_delay, in seconds."""
ALMOST_FULL = 0.8
MIN_JOB_AGE_INTERVALS = 6
LEAST_JOB_AGE_S = 60


@check("settings")
def _priority_type(seen: Seen) -> Finding:
    """Tiers are priorities. Under priority/basic unmanaged jobs rank far above them, and fairshare
    and age have no effect."""
    default = seen.differences.priority_type
    kind = known(seen).word("PriorityType") or default
    if kind == MULTIFACTOR:
        return ok(kind)
    line = slurm_conf("PriorityType", MULTIFACTOR)
    if seen.config.priority.write == "site-factor":
        return error(f"{kind}, and priority.write is site-factor: tiers are lost", line)
    return warning(f"{kind}: unmanaged jobs rank above all tiers", line)


@check("settings")
def _priority_weights(seen: Seen) -> Finding | None:
    """Tiers are bands of priorities; Slurm's weighted sum must not reach from one band into the
    next."""
    has = known(seen)
    most = sum(has.number(f"PriorityWeight{name}") or 0 for name in WEIGHTS)
    tres = "PriorityWeightTRES"
    most += sum(has.option_number(tres, name, 0) for name in has.options(tres))
    by_site_factor = seen.config.priority.write == "site-factor"
    room = (
        SITE_FACTOR_BAND
        if by_site_factor
        else TOP_TIER - (seen.config.policy.tier_count - 1) * BAND
    )
    if most < room:
        return ok(f"PriorityWeight* sum to {most:,.0f}, of {room:,} that there is room for")
    return warning(
        f"PriorityWeight* sum to {most:,.0f}: {room:,} or more reaches into the tiers",
        do=(f"divide every PriorityWeight* in slurm.conf by {int(most // room) + 1}",),
    )


@check("settings")
def _select_type(seen: Seen) -> Finding | None:
    """Slurm must allocate single GPUs, so that a job can start on those that a preemption frees."""
    kind = known(seen).word("SelectType")
    if kind == "select/cons_tres":
        return ok(kind)
    if not kind:
        return None
    lines = (
        slurm_conf("SelectType", "select/cons_tres"),
        slurm_conf("SelectTypeParameters", "CR_Core_Memory"),
    )
    return error(f"{kind} gives out no single GPUs", *lines)


@check("settings", "partitions")
def _least_loaded(seen: Seen) -> Finding | None:
    """Jobs spread over all nodes leave no whole nodes for wide jobs, and slow skewed models
    down."""
    words = known(seen).word("SelectTypeParameters").split(",")
    spread = [f"LLN=YES of partition {p.name}" for p in seen.managed if p.least_loaded]
    if "cr_lln" in words:
        spread.insert(0, "SelectTypeParameters=CR_LLN")
    if not spread:
        return ok("jobs go where they fit tightest")
    return note(
        f"{', '.join(spread)}: jobs go to the least loaded node", do=("take it out of slurm.conf",)
    )


@check("partitions")
def _prompt_limit(seen: Seen) -> Finding | None:
    """A job at a prompt without a time limit does not start ahead of others ([interactive])."""
    if not seen.config.interactive.gpus_per_user:
        return None
    unlimited = [p.name for p in seen.managed if not p.limits_time]
    if not unlimited:
        return ok("jobs at a prompt have a time limit")
    if re.search(r"prompt_limit_min *= *[1-9]", seen.job_submit or ""):
        return ok("job_submit.lua limits jobs at a prompt")
    return note(
        f"salloc and srun without --time have no limit in {', '.join(unlimited)}",
        do=(
            "Set a DefaultTime for the partition in slurm.conf, or prompt_limit_min in",
            "the job_submit.lua that `tiresias-slurm init` writes.",
        ),
    )


@check("settings")
def _scheduler_type(seen: Seen) -> Finding:
    """Without backfill, a job that waits for nodes or a licence blocks all jobs behind it."""
    kind = known(seen).word("SchedulerType")
    if kind == "sched/backfill":
        return ok(kind)
    return warning(
        f"{kind}: a job that cannot start stops its whole partition",
        slurm_conf("SchedulerType", "sched/backfill"),
    )


@check("settings")
def _batch_sched_delay(seen: Seen) -> Finding:
    """Nothing is preempted for a job before Slurm has tried to start it, which batch_sched_delay
    postpones."""
    parameters = "SchedulerParameters"
    delay_s = known(seen).option_number(parameters, "batch_sched_delay", TRIED_AFTER_S)
    if delay_s <= 1:
        return ok(f"batch_sched_delay={delay_s:g}")
    return note(f"batch_sched_delay is {delay_s:g} s", scheduler(add="batch_sched_delay=1"))


@check("settings")
def _defer(seen: Seen) -> Finding:
    """With defer, GPUs that become idle stay idle until Slurm's next periodic pass."""
    options = known(seen).options("SchedulerParameters")
    found = [name for name in ("defer", "defer_batch") if name in options]
    if not found:
        return ok("Slurm looks for a job to start whenever one ends")
    return note(f"{found[0]} is set", scheduler(drop=found[0]))


@check("settings")
def _sched_min_interval(seen: Seen) -> Finding:
    """A nominated job and the GPUs freed for it wait for Slurm's next pass."""
    micros = known(seen).option_number("SchedulerParameters", "sched_min_interval", 2)
    if micros < 1_000_000:
        return ok("Slurm may look for jobs to start at any time")
    return note(
        f"sched_min_interval={micros:.0f}: no more often than every {micros / 1e6:g} s",
        scheduler(drop="sched_min_interval"),
    )


@check("settings")
def _bf_continue(seen: Seen) -> Finding:
    """With bf_continue, backfill before 26.05.3 overwrites priorities that change while it runs,
    and a job keeps its old tier until the controller repairs it."""
    if "bf_continue" not in known(seen).options("SchedulerParameters"):
        return ok("bf_continue is not set")
    if seen.differences.backfill_keeps_updates:
        return ok("bf_continue is set, and harmless from 26.05.3 on")
    return warning("bf_continue is set, before Slurm 26.05.3", scheduler(drop="bf_continue"))


@check("settings")
def _bf_min_prio_reserve(seen: Seen) -> Finding:
    """Jobs with a lower priority get no reservation and may starve, unmanaged jobs first."""
    least = known(seen).option_number("SchedulerParameters", "bf_min_prio_reserve", 0)
    if not least:
        return ok("every job may reserve nodes")
    return note(f"bf_min_prio_reserve={least:.0f}", scheduler(drop="bf_min_prio_reserve"))


@check("settings")
def _bf_min_age_reserve(seen: Seen) -> Finding:
    """Without a reservation, another job may take the GPUs that were freed for a preemptor."""
    least_s = known(seen).option_number("SchedulerParameters", "bf_min_age_reserve", 0)
    if not least_s:
        return ok("a job may reserve nodes as soon as it waits")
    return note(
        f"bf_min_age_reserve={least_s:.0f}: no job reserves nodes before it has waited that long",
        scheduler(drop="bf_min_age_reserve"),
    )


@check("settings", "known_jobs")
def _max_job_count(seen: Seen) -> Finding | None:
    """When slurmctld holds MaxJobCount jobs, it accepts no new or requeued ones."""
    most = known(seen).number("MaxJobCount")
    if not most or seen.known_jobs is None:
        return None
    found = f"{seen.known_jobs:,} jobs of MaxJobCount={most:.0f} are in slurmctld's memory"
    if seen.known_jobs < ALMOST_FULL * most:
        return ok(found)
    return warning(found, slurm_conf("MaxJobCount", f"{2 * most:.0f}"))


@check("settings")
def _min_job_age(seen: Seen) -> Finding:
    """The controller sees a job's end while slurmctld still shows the job. If slurmctld forgets it
    sooner, accounting must be asked, or the job's last minutes are not counted."""
    age_s = known(seen).number("MinJobAge")
    interval_s = seen.config.controller.interval_s
    least_s = max(LEAST_JOB_AGE_S, MIN_JOB_AGE_INTERVALS * interval_s)
    found = f"MinJobAge={age_s:g}, and a cycle every {interval_s:g} s"
    if age_s is None or age_s == 0 or age_s >= least_s:
        return ok(found)
    return warning(found, slurm_conf("MinJobAge", f"{max(300, least_s):.0f}"))


@check("settings")
def _default_memory(seen: Seen) -> Finding | None:
    """A job that requests no memory gets all of its node's, and the other GPUs there stay idle."""
    has = known(seen)
    if "memory" not in has.word("SelectTypeParameters"):
        return None
    keys = ("DefMemPerCPU", "DefMemPerNode", "JobDefaults")
    said = [f"{key}={has.text(key)}" for key in keys if has.word(key) not in ("", "unlimited")]
    if any("mem" in each.lower() for each in said):
        return ok(", ".join(said))
    nodes = [node for node in seen.managed_nodes if node.total.cpus]
    share_mb = min((int(node.total.memory_mb // node.total.cpus) for node in nodes), default=0)
    lines = (slurm_conf("DefMemPerCPU", str(share_mb)),) if share_mb else ()
    return warning("none is set (DefMemPerCPU): such a job gets all memory of its node", *lines)
