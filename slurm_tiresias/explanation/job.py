"""Explain one job: what it waits for, or why it runs, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from slurm_tiresias.explanation import progress, start
from slurm_tiresias.explanation.events import event_text
from slurm_tiresias.explanation.reasons import (
    MODE_TEXTS,
    ends_text,
    protection_text,
    reason_text,
    slurm_reason_text,
    what_to_do,
    would_text,
)
from slurm_tiresias.explanation.section import SCHEMA, Explanation, Section
from slurm_tiresias.gpu_hours import exact_gpu_hours, gpu_hours
from slurm_tiresias.model import Action, EventRecord, JobState, Lane, ProgressSource, Reason
from slurm_tiresias.status.published import Blocker, PublishedJob, PublishedState, PublishedTier
from slurm_tiresias.status.waiting import goes_by_estimate, waits_before, waits_for_room
from slurm_tiresias.text import NOTHING, at, count, duration, filled, listed, printable, times

LATELY = "What happened to it lately"
MOST_BLOCKERS = 8
MOST_EVENTS = 10
PLACED = {"consolidate": "consolidated"}
BY_REPORTS = "by its own reports"
LANES = {
    Lane.INTERACTIVE.value: "It is a job at a prompt within its user's bound ([interactive]): "
    "it goes first in the top tier, and it is not preempted.",
    Lane.IDLE_ONLY.value: "It is not preempted and preempts no job, because Slurm cannot requeue "
    "it, or its program loses all work in preemptions. Its tier follows from the most that it may "
    "use: its GPUs times its time limit.",
}
LEAVES = (Reason.PREEMPTED.value, Reason.VACATING.value, Reason.IDLE_GPUS.value, Reason.HUNG.value)
CARRIED_OUT = (Action.START.value, Action.PREEMPT.value, Action.RUN_ON.value)
WITHOUT_NEWS = ("", "None", "Priority", "Resources")
"""Slurm's reasons that say only that a job waits for its turn."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job of a published state, and everything needed to explain it."""

    job: PublishedJob
    state: PublishedState
    jobs: Mapping[str, PublishedJob]
    now_s: float
    depends_on: str = ""
    """The jobs that it depends on, in Slurm's notation; "" if there are none."""
    most_blockers: int = MOST_BLOCKERS

    @property
    def tier(self) -> PublishedTier | None:
        return next((t for t in self.state.tiers if t.tier == self.job.tier), None)

    @property
    def waits(self) -> bool:
        return self.job.state == JobState.PENDING.value

    @property
    def stays(self) -> bool:
        """Whether the job runs and is never preempted."""
        return bool(self.job.lane) and self.job.reason == Reason.RUNS_ON.value

    @property
    def events(self) -> tuple[EventRecord, ...]:
        """Return the latest events that name this job, oldest first."""
        job_id = self.job.job_id
        named = [event for event in self.state.events if job_id in (event.job_id, event.other)]
        return tuple(sorted(named, key=lambda event: event.at_s)[-MOST_EVENTS:])

    def who(self, *job_ids: str) -> str:
        """Return ``job 12 of alice and job 13``, as far as the users are known."""
        users = (self.jobs[job_id].user if job_id in self.jobs else "" for job_id in job_ids)
        return listed(
            tuple(
                f"job {printable(job_id)}{f' of {printable(user)}' if user else ''}"
                for job_id, user in zip(job_ids, users, strict=True)
            )
        )

    def ago(self, at_s: float) -> str:
        return f"{duration(self.now_s - at_s)} ago ({at(at_s)})"


def explain_job(case: Case) -> Explanation:
    """Return the explanation of a job."""
    job = case.job
    blocking = (blocker.job_id for blocker in job.blockers if blocker.job_id in case.jobs)
    return Explanation(
        headline=(
            f"Job {printable(job.job_id)} ({printable(job.name)}) of {printable(job.user)}, "
            f"partition {printable(job.partition)}: {printable(job.slurm_state)}, "
            f"{'asks for' if case.waits else 'holds'} {count(job.gpus, 'GPU')}{_on_nodes(job)}.",
        ),
        sections=sections(case),
        data={
            "schema": SCHEMA,
            "cluster": case.state.cluster,
            "mode": case.state.mode,
            "at_s": case.state.at_s,
            "job": asdict(job),
            "tier": asdict(case.tier) if case.tier else None,
            "blocking_jobs": [asdict(case.jobs[job_id]) for job_id in blocking],
            "room_expected_at_s": job.start.likely_s if job.start else None,
            "events": [asdict(event) for event in case.events],
        },
    )


def sections(case: Case) -> tuple[Section, ...]:
    """Return the whole explanation; sections without content are left out."""
    job, acts = case.job, case.state.acts
    blockers = tuple(_blockers(case))
    how_far = Section("How far it is", tuple(progress.sentences(job, case.now_s)))
    if acts:
        found = [
            Section("Tier and rank", tuple(_standing(case))),
            Section(_title_of_why(case), tuple(_why(case)), blockers),
            how_far,
            Section("Preemptions", tuple(_preemptions(case))),
            Section("What happens next", tuple(_next(case))),
        ]
    else:
        # Slurm's own actions come first, separate from what the controller would do.
        found = [
            Section("What Slurm does", tuple(_slurm_does(case))),
            Section("What the controller would do", tuple(_would(case)), blockers),
            Section("Tier and rank in the controller", tuple(_standing(case))),
            how_far,
            Section("Preemptions", tuple(_past_preemptions(case))),
        ]
    if not case.stays and (acts or job.action not in CARRIED_OUT):
        do = what_to_do(job.reason, job.slurm_reason, saves=job.saves)
        do = do.replace("JOBID", printable(job.job_id))
        found.append(Section("What its user can do", (do,) if do else ()))
    events = (f"{case.ago(event.at_s)}: {event_text(job.job_id, event)}" for event in case.events)
    found.append(Section(LATELY, (), tuple(events)))
    return tuple(section for section in found if section.sentences or section.items)


def _on_nodes(job: PublishedJob) -> str:
    return f" on {printable(job.nodes)}" if job.nodes else ""


# Where it stands


def _standing(case: Case) -> Iterator[str]:
    job, acts = case.job, case.state.acts
    if job.tier is None:
        yield "It has no tier, and the service it attains is not counted."
        if acts:
            yield from _place_in_slurm(case)
        return
    order = "the whole order" if acts else "the controller's order"
    rank = "" if job.rank is None else f", place {job.rank + 1} in {order}"
    last = len(case.state.tiers) - 1
    among = f" (0 is the highest, {last} the lowest)" if last > 0 else ""
    yield f"It is in tier {job.tier}{among}{rank}."
    if job.lane:
        yield LANES.get(job.lane, f"Its lane is {printable(job.lane)}.")
    yield from _ranked_by(case)
    attained = f"It has attained {gpu_hours(job.attained_gpu_s)}"
    yield f"{attained} (GPUs x running time, over all its runs){_way_to_next_tier(case)}."
    if job.inherited_gpu_s > 0.0:
        until = "now" if job.first_started_s is None else "it first started"
        payer = "account" if case.state.charge == "account" and job.account else "user"
        yield (
            f"{gpu_hours(job.inherited_gpu_s)} more count for its tier: the service of runs of "
            f"other jobs of its {payer} that ended not long before {until} (policy.charge)."
        )
    yield from (filled(said, at) for said in job.says)
    if job.promotions:
        yield (
            f"It was promoted to tier 0 {times(job.promotions)} because it had waited long; its "
            "tier counts only service attained since."
        )
    if case.waits:
        yield f"It has waited {duration(job.waited_s)} since it last ran or was submitted."


def _ranked_by(case: Case) -> Iterator[str]:
    estimate, tier = case.job.estimate, case.tier
    if estimate is None:
        return
    if estimate.remaining_gpu_s is None:
        why_not = f"It is not ranked {BY_REPORTS}: {estimate.why_not}."
        yield f"{why_not} It is ranked by attained service."
        return
    needs = gpu_hours(estimate.remaining_gpu_s)
    if estimate.is_guess:
        lower = " That is why its tier is lower than by attained service." if _sunk(case) else ""
        yield (
            f"By the run times of ended jobs like it, it still needs {needs}: of the waiting jobs "
            f"of a tier, those that need less go first.{lower}"
        )
        return
    up = ""
    if tier is not None and tier.tier > 0:
        limit = exact_gpu_hours(tier.from_gpu_s)
        up = f"; once that is less than {limit} it moves up to tier {tier.tier - 1}"
    yield f"It is ranked by the service that it still needs: {needs}, {BY_REPORTS}{up}."


def _sunk(case: Case) -> bool:
    """Whether a guess has moved the job below the tier of its attained service."""
    job, tier = case.job, case.tier
    counts_gpu_s = job.attained_since_promotion_gpu_s + job.inherited_gpu_s
    is_guess = job.estimate is not None and job.estimate.is_guess
    return is_guess and tier is not None and counts_gpu_s < tier.from_gpu_s


def _way_to_next_tier(case: Case) -> str:
    job, tier = case.job, case.tier
    if tier is None or job.lane or goes_by_estimate(job) or _sunk(case):
        return ""
    if tier.to_gpu_s is None:
        return "; there is no tier below its own"
    # A guess may move it down further.
    below = f" to tier {tier.tier + 1}" if job.estimate is None else ""
    move = f"; at {exact_gpu_hours(tier.to_gpu_s)} it moves down{below}"
    missing_gpu_s = tier.to_gpu_s - job.attained_since_promotion_gpu_s - job.inherited_gpu_s
    if not job.gpus or missing_gpu_s <= 0:
        return move
    return f"{move}, after {duration(missing_gpu_s / job.gpus)} more on {count(job.gpus, 'GPU')}"


# What is decided, and what Slurm does


def _title_of_why(case: Case) -> str:
    if case.job.state == JobState.RUNNING.value:
        return "Why it stops" if case.job.reason in LEAVES else "Why it runs"
    return "Why it waits" if case.waits else "What it does"


def _why(case: Case) -> Iterator[str]:
    job = case.job
    yield printable(reason_text(job.reason).means)
    yield from _detail(job)
    if case.waits and job.slurm_reason not in WITHOUT_NEWS:
        yield f"Slurm's own reason: {printable(slurm_reason_text(job.slurm_reason))}."
    yield from _slurm_keeps_it(case)
    yield from _start(case, "will start")
    if job.left_to_slurm:
        yield f"Its nodes are left to Slurm: {printable(job.left_to_slurm)}."
    elif job.gpus > 1 and job.placement_because:  # one GPU cannot be spread
        style = PLACED.get(job.placement, job.placement)
        yield f"Placement: {printable(style)}: {printable(job.placement_because)}."
    if job.victims:
        yield f"It preempts {case.who(*job.victims)}."
    if job.preempted_for:
        yield f"It is preempted for {case.who(job.preempted_for)}."
    if job.blockers:
        yield "What it needs is held by these jobs, which may not be preempted for it:"


def _would(case: Case) -> Iterator[str]:
    job = case.job
    if case.state.mode in MODE_TEXTS:
        yield MODE_TEXTS[case.state.mode]
    if job.preempted_for:
        yield f"It would be preempted for {case.who(job.preempted_for)}."
    else:
        yield printable(would_text(job.reason))
    yield from _detail(job)
    yield from _start(case, "would start")
    if job.victims:
        yield f"It would preempt {case.who(*job.victims)}."
    if waits_for_room(job) and job.managed:
        yield from _queue_before(case)
    if job.blockers:
        yield "These jobs hold what it needs, and would not be preempted for it:"


def _detail(job: PublishedJob) -> Iterator[str]:
    if job.detail and job.detail != job.slurm_reason:
        yield f"In detail: {printable(job.detail).rstrip('.')}."


def _start(case: Case, starts: str) -> Iterator[str]:
    job = case.job
    if job.start_on:
        style = f", to {printable(job.style)}" if job.style else ""
        yield f"It {starts} on {printable(job.start_on)}{style}."


def _slurm_does(case: Case) -> Iterator[str]:
    job = case.job
    if case.waits:
        yield f"It waits: {printable(slurm_reason_text(job.slurm_reason or 'None'))}."
        yield from _slurm_keeps_it(case)
        yield from _place_in_slurm(case)
        return
    verb = "runs" if job.state == JobState.RUNNING.value else printable(job.slurm_state.lower())
    since = "" if job.running_since_s is None else f", since {at(job.running_since_s)}"
    yield f"It {verb}{_on_nodes(job)}{since}."


def _slurm_keeps_it(case: Case) -> Iterator[str]:
    """Yield until when, or for which jobs, Slurm itself makes the job wait."""
    job, begins_s = case.job, case.job.begins_s
    # Without a time that its user chose, Slurm delays it because it was requeued.
    is_delayed = case.waits and job.slurm_reason == "BeginTime" and job.preempted_at_s is not None
    if begins_s is not None and begins_s > case.now_s:
        left = duration(begins_s - case.now_s)
        yield f"Slurm does not start it before {at(begins_s)}, in {left}."
    elif begins_s is None and case.state.acts and is_delayed:
        yield "Slurm delays a requeued job; the controller ends the delay in one of its cycles."
    if case.depends_on:
        yield f"It depends on {printable(case.depends_on)}."


def _place_in_slurm(case: Case) -> Iterator[str]:
    job = case.job
    if case.waits and job.slurm_place is not None:
        yield (
            f"By Slurm's own priority it has place {job.slurm_place + 1} among the jobs that wait "
            f"in partition {printable(job.partition)}."
        )


def _blockers(case: Case) -> Iterator[str]:
    blockers, said = case.job.blockers, ""
    for blocker in blockers[: case.most_blockers]:
        because = printable(protection_text(blocker.protection).because)
        # Only a protection that expires by itself has an end time.
        left_s = 0.0 if blocker.until_s is None else blocker.until_s - case.now_s
        left = f"; {duration(left_s)} to go" if left_s > 0 else ""
        other = case.jobs.get(blocker.job_id)
        needs = progress.time_left(other) if other else NOTHING
        ends = "" if needs == NOTHING else f"; it needs {needs} more, by its own account"
        why, said = "likewise" if because == said else because, because
        yield f"{_holding(case, blocker)}: {why}{left}{ends}."
    if len(blockers) > case.most_blockers:
        yield f"And {count(len(blockers) - case.most_blockers, 'job')} more."


def _holding(case: Case, blocker: Blocker) -> str:
    who = case.who(blocker.job_id)
    who = who[0].upper() + who[1:]
    other = case.jobs.get(blocker.job_id)
    if other is None:
        return who
    tier = "" if other.tier is None else f" (tier {other.tier})"
    what = count(other.gpus, "GPU") if other.gpus else "CPUs or memory"
    return f"{who}{tier}, {what}{_on_nodes(other)}"


# Preemptions, and what comes next


def _preemptions(case: Case) -> Iterator[str]:
    job, appended = case.job, case.state.output_appended
    if job.lane:
        return
    if job.managed and appended is not None:
        # Slurm does not show whether the job was submitted with --open-mode.
        does, other = (
            ("it appends to its output files", "truncate")
            if appended
            else ("its output files are truncated", "append")
        )
        yield f"When it restarts {does}, unless it was submitted with --open-mode={other}."
    if job.signal:
        yield (
            f"Before it is preempted it gets SIG{printable(job.signal)} and "
            f"{duration(job.grace_s)} to save its state."
        )
        if job.progress and job.progress.source == ProgressSource.REPORTS.value:
            yield "It is requeued as soon as it reports that it has."
    yield from progress.longer_runs(job)
    yield from progress.shorter_runs(job)
    yield from _past_preemptions(case)


def _past_preemptions(case: Case) -> Iterator[str]:
    job = case.job
    if not job.preemptions:
        return
    by = f" by {case.who(job.preempted_by)}" if job.preempted_by else ""
    when = "" if job.preempted_at_s is None else f", {case.ago(job.preempted_at_s)}"
    last = ", last" if job.preemptions > 1 and (by or when) else "," if by else ""
    yield f"It was preempted {times(job.preemptions)}{last}{by}{when}."
    yield "It kept its job id and the service it attained."


def _next(case: Case) -> Iterator[str]:
    job = case.job
    waits = waits_for_room(job)
    in_last_tier = case.tier is not None and case.tier.to_gpu_s is None
    if case.stays:
        yield "It runs until it ends."
    elif job.ranks_last and waits:
        yield "It starts on GPUs that no job before it needs: all others come before it."
    else:
        ends = ends_text(job.reason, in_last_tier=in_last_tier)
        yield ends.replace("JOBID", printable(job.job_id))
    if waits and job.managed:
        again = " again" if job.first_started_s is not None else ""
        yield from start.sentences(job.start, case.now_s, again)
        yield from _queue_before(case)


def _queue_before(case: Case) -> Iterator[str]:
    """Yield which pending jobs come before this one."""
    before = waits_before(case.job, case.state)
    if before:
        gpus = count(sum(job.gpus for job in before), "GPU")
        come, ask = ("comes", "asks") if len(before) == 1 else ("come", "ask")
        yield f"{count(len(before), 'waiting job')} {come} before it, and {ask} for {gpus}."
