"""``tiresias-slurm explain``: why a job waits or runs, and what would change that, in sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from slurm_tiresias.cli import complete, progress_text
from slurm_tiresias.cli.arrays import array_of
from slurm_tiresias.cli.events import event_text
from slurm_tiresias.cli.options import (
    complain_if_not_current,
    is_named_by,
    job_id_argument,
    json_option,
    takes_config,
)
from slurm_tiresias.cli.screen import Screen, show_or_json, stdout
from slurm_tiresias.cli.text import NOTHING, count, duration, filled, listed, moment, printable
from slurm_tiresias.core.features.max_slowdown import explained
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.gpu_hours import exact_gpu_hours, gpu_hours
from slurm_tiresias.model import Action, JobState, Lane, ProgressSource, Reason
from slurm_tiresias.reasons import (
    MODE_TEXTS,
    ends_text,
    protection_text,
    reason_text,
    slurm_reason_text,
    what_to_do,
    would_text,
)
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import HISTORY, LIMITS, REPORTS
from slurm_tiresias.status import published
from slurm_tiresias.status.eta import (
    estimated_room,
    goes_by_estimate,
    waits_before,
    waits_for_room,
)
from slurm_tiresias.status.job_history import JobHistory, query_history
from slurm_tiresias.status.published import (
    Blocker,
    PublishedEstimate,
    PublishedEvent,
    PublishedJob,
    PublishedState,
    PublishedTier,
)

EXPLANATION_SCHEMA = 1
MOST_BLOCKERS = 8
MOST_EVENTS = 10
PLACED = {"consolidate": "consolidated"}
ESTIMATED = {
    REPORTS: "by its own reports",
    HISTORY: "by the run times of jobs of its user and name",
    LIMITS: "by its time limit and its user's use of earlier limits",
}
LANES = {
    Lane.INTERACTIVE.value: "It is a job at a prompt within its user's bound ([interactive]): "
    "it goes first in the top tier, and it is not preempted.",
    Lane.IDLE_ONLY.value: "It is not preempted and preempts no job, because Slurm cannot requeue "
    "it. Its tier follows from the most that it may use: its GPUs times its time limit.",
}
LEAVES = (Reason.PREEMPTED.value, Reason.VACATING.value, Reason.IDLE_GPUS.value)
DEPENDENCY = "Dependency"
WITHOUT_NEWS = ("", "None", "Priority", "Resources")
"""Slurm's reasons that say only that a job waits for its turn."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it; ``listed`` sentences are shown as a list."""

    title: str
    sentences: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One job of a published state, and everything needed to explain it."""

    job: PublishedJob
    state: PublishedState
    jobs: Mapping[str, PublishedJob]
    now_s: float
    depends_on: str = ""
    """The jobs that it depends on, in Slurm's notation; "" if there are none."""

    @property
    def tier(self) -> PublishedTier | None:
        return next((t for t in self.state.tiers if t.tier == self.job.tier), None)

    @property
    def waits(self) -> bool:
        return self.job.state == JobState.PENDING.value

    @property
    def blocking_jobs(self) -> tuple[PublishedJob, ...]:
        ids = (blocker.job_id for blocker in self.job.blockers)
        return tuple(self.jobs[job_id] for job_id in ids if job_id in self.jobs)

    @property
    def events(self) -> tuple[PublishedEvent, ...]:
        """Return the latest events that name this job, oldest first."""
        job_id = self.job.job_id
        named = [event for event in self.state.events if job_id in (event.job_id, event.other)]
        return tuple(sorted(named, key=lambda event: event.at_s)[-MOST_EVENTS:])

    def who(self, job_id: str) -> str:
        """Return ``job 12 of alice``, or less if less is known."""
        other = self.jobs.get(job_id)
        of_user = f" of {printable(other.user)}" if other else ""
        return f"job {printable(job_id)}{of_user}"


@click.command()
@click.argument(
    "job_id",
    metavar="JOBID",
    callback=job_id_argument,
    shell_complete=complete.of_state(complete.jobs, several=False),
)
@json_option
@takes_config
def explain(config: Config, job_id: str, as_json: bool) -> None:
    """Say why a job waits, runs or was preempted.

    Shows the job's place in the queue, which jobs hold the GPUs that it needs and what protects
    them, what must happen for it to start, and what its user can do. For a job that has ended,
    shows its recorded history; for an array, how many tasks are in which state, and why. If the
    controller does not act (shadow mode, paused), shows what Slurm does, and separately what the
    controller would do. Exit code 1: no such job. Exit code 3: no controller runs, or its published
    state is out of date (the job is explained nevertheless).
    """
    state, now_s = published.read(Path(config.controller.state_dir)), time.time()
    if tasks := _tasks_of(state, job_id):
        from slurm_tiresias.cli import explain_array

        show_or_json(
            as_json,
            lambda: explain_array.summary(job_id, tasks, state),
            lambda screen: explain_array.lines(job_id, tasks, state, screen),
        )
        complain_if_not_current(state, now_s)
        return
    job = _the_job(state, job_id)
    if job is None:
        _explain_ended(config, job_id, state, now_s, as_json=as_json)
        return
    case = Case(
        job=job,
        state=state,
        jobs={job.job_id: job for job in state.jobs},
        now_s=now_s,
        depends_on=_dependency(config, job),
    )
    show_or_json(as_json, lambda: as_data(case), lambda screen: lines(case, screen))
    complain_if_not_current(state, now_s)


def _tasks_of(state: PublishedState, array: str) -> list[PublishedJob]:
    """Return the tasks of an array, if the id names several tasks and no single job."""
    tasks = [job for job in state.jobs if array_of(job.job_id) == array]
    alone = len(tasks) == 1 or any(job.job_id == array for job in state.jobs)
    return [] if alone else tasks


def _dependency(config: Config, job: PublishedJob) -> str:
    """Ask Slurm what the job depends on, which the controller does not query."""
    if not job.slurm_reason.startswith(DEPENDENCY):
        return ""
    from slurm_tiresias.controller.driver import driver

    try:
        return driver(config).dependency(job.job_id)
    except TiresiasError:
        return ""


def _the_job(state: PublishedState, job_id: str) -> PublishedJob | None:
    answering = [job for job in state.jobs if is_named_by(job.job_id, job_id)]
    exact = [job for job in answering if job.job_id == job_id]
    if exact or len(answering) == 1:
        return (exact or answering)[0]
    if answering:
        names = listed(tuple(printable(job.job_id) for job in answering))
        raise UsageError(f"Job {job_id} has several parts: {names}", "Name one of them")
    return None


def _explain_ended(
    config: Config, job_id: str, state: PublishedState, now_s: float, *, as_json: bool
) -> None:
    """Explain what happened to a job that the last cycle did not see, from its recorded history."""
    try:
        job = query_history(Path(config.controller.state_dir), job_id).history
    except TiresiasError:
        job = None
    if job is None or job.ended_s is None:
        complain_if_not_current(state, now_s)
        whose = f" of {printable(state.only_of)}, who may see no others" if state.only_of else ""
        raise TiresiasError(
            f"The controller knows no job {job_id}{whose}: it has ended, was submitted just now, "
            "or never requested GPUs in a managed partition",
            f"See Slurm's own records with: sacct -j {job_id}",
        )
    when = f"{duration(now_s - job.ended_s)} ago ({moment(job.ended_s)})"
    ended = f"Job {printable(job.job_id)} has ended, {when}."
    if as_json:
        click.echo(json.dumps(_as_data_of_ended(job, ended, state)))
        return
    from slurm_tiresias.cli.history import history

    screen = stdout()
    screen.show(iter([*screen.prose(f"{ended} Its recorded history:", indent=""), ""]))
    click.get_current_context().invoke(history, job_id=job.job_id, as_json=False)


def _as_data_of_ended(job: JobHistory, ended: str, state: PublishedState) -> dict[str, object]:
    return {
        "schema": EXPLANATION_SCHEMA,
        "cluster": state.cluster,
        "mode": state.mode,
        "at_s": state.at_s,
        "job": None,
        "tier": None,
        "blocking_jobs": [],
        "room_expected_at_s": None,
        "events": [asdict(event) for event in job.events[-MOST_EVENTS:]],
        "sections": [asdict(Section("What happened to it", (ended,)))],
    }


def as_data(case: Case) -> dict[str, object]:
    """Return the explanation for ``--json``; fields are added, never changed."""
    room = estimated_room(case.job, case.state, case.jobs)
    return {
        "schema": EXPLANATION_SCHEMA,
        "cluster": case.state.cluster,
        "mode": case.state.mode,
        "at_s": case.state.at_s,
        "job": asdict(case.job),
        "tier": asdict(case.tier) if case.tier else None,
        "blocking_jobs": [asdict(other) for other in case.blocking_jobs],
        "room_expected_at_s": room.at_s if room else None,
        "events": [asdict(event) for event in case.events],
        "sections": [asdict(section) for section in sections(case)],
    }


def lines(case: Case, screen: Screen) -> Iterator[str]:
    """Yield the lines of the explanation for people."""
    yield from screen.prose(_headline(case), indent="")
    for section in sections(case):
        yield from section_lines(section, screen)


def section_lines(section: Section, screen: Screen) -> Iterator[str]:
    yield ""
    yield screen.style(section.title, "title")
    for sentence in section.sentences:
        yield from screen.prose(sentence)
    for item in section.items:
        yield from screen.item(item)


def _headline(case: Case) -> str:
    job = case.job
    verb = "asks for" if case.waits else "holds"
    where = f" on {printable(job.nodes)}" if job.nodes else ""
    return (
        f"Job {printable(job.job_id)} ({printable(job.name)}) of {printable(job.user)}, "
        f"partition {printable(job.partition)}: {printable(job.slurm_state)}, "
        f"{verb} {count(job.gpus, 'GPU')}{where}."
    )


def sections(case: Case) -> list[Section]:
    """Return the whole explanation; sections without content are left out."""
    job = case.job
    blockers = tuple(_blockers(case))
    do = what_to_do(job.reason, job.slurm_reason, saves=job.saves)
    do = do.replace("JOBID", printable(job.job_id))
    if _stays(job):
        do = ""
    if case.state.acts:
        candidates = [
            Section("Tier and rank", tuple(_standing(case))),
            Section(_title_of_why(case), tuple(_why(case)), blockers),
            Section("How far it is", tuple(progress_text.sentences(job, case.now_s))),
            Section("Preemptions", tuple(_preemptions(case))),
            Section("What happens next", tuple(_next(case))),
        ]
    else:
        # Slurm's own actions come first, separate from what the controller would do.
        candidates = [
            Section("What Slurm does", tuple(_slurm_does(case))),
            Section("What the controller would do", tuple(_would(case)), blockers),
            Section("Tier and rank in the controller", tuple(_standing(case))),
            Section("How far it is", tuple(progress_text.sentences(job, case.now_s))),
            Section("Preemptions", tuple(_past_preemptions(case))),
        ]
        if job.action in (Action.START.value, Action.PREEMPT.value, Action.RUN_ON.value):
            do = ""
    events = [f"{_ago(case, event.at_s)}: {event_text(job.job_id, event)}" for event in case.events]
    candidates += [
        Section("What its user can do", (do,) if do else ()),
        Section("What happened to it lately", (), tuple(events)),
    ]
    return [section for section in candidates if section.sentences or section.items]


def _slurm_does(case: Case) -> Iterator[str]:
    job = case.job
    if case.waits:
        yield f"It waits: {printable(slurm_reason_text(job.slurm_reason or 'None'))}."
        yield from _slurm_keeps_it(case)
        yield from _place_in_slurm(case)
        return
    verb = "runs" if job.state == JobState.RUNNING.value else printable(job.slurm_state.lower())
    where = f" on {printable(job.nodes)}" if job.nodes else ""
    since = "" if job.running_since_s is None else f", since {moment(job.running_since_s)}"
    yield f"It {verb}{where}{since}."


def _would(case: Case) -> Iterator[str]:
    job = case.job
    if case.state.mode in MODE_TEXTS:
        yield MODE_TEXTS[case.state.mode]
    if job.preempted_for:
        yield f"It would be preempted for {case.who(job.preempted_for)}."
    else:
        yield printable(would_text(job.reason))
    yield from _detail(job)
    if job.start_on:
        style = f", to {printable(job.style)}" if job.style else ""
        yield f"It would start on {printable(job.start_on)}{style}."
    if job.victims:
        victims = listed(tuple(case.who(victim) for victim in job.victims))
        yield f"It would preempt {victims}."
    if waits_for_room(job) and job.managed:
        yield from _queue_before(case)
    if job.blockers:
        yield "These jobs hold what it needs, and would not be preempted for it:"


def _title_of_why(case: Case) -> str:
    if case.job.state == JobState.RUNNING.value:
        return "Why it stops" if case.job.reason in LEAVES else "Why it runs"
    return "Why it waits" if case.waits else "What it does"


def _standing(case: Case) -> Iterator[str]:
    job = case.job
    if job.tier is None:
        yield "It has no tier, and the service it attains is not counted."
        if case.state.acts:
            yield from _place_in_slurm(case)
        return
    order = "the whole order" if case.state.acts else "the controller's order"
    rank = "" if job.rank is None else f", place {job.rank + 1} in {order}"
    last = len(case.state.tiers) - 1
    among = f" (0 is the highest, {last} the lowest)" if last > 0 else ""
    yield f"It is in tier {job.tier}{among}{rank}."
    if job.lane:
        yield LANES.get(job.lane, f"Its lane is {printable(job.lane)}.")
    if job.estimate is not None:
        yield _ranked_by(job.estimate, case.tier)
    attained = f"It has attained {gpu_hours(job.attained_gpu_s)}"
    yield f"{attained} (GPUs x running time, over all its runs){_way_to_next_tier(case)}."
    if job.inherited_gpu_s > 0.0:
        until = "now" if job.first_started_s is None else "it first started"
        payer = "account" if case.state.charge == "account" and job.account else "user"
        yield (
            f"{gpu_hours(job.inherited_gpu_s)} more count for its tier: the service of runs of "
            f"other jobs of its {payer} that ended not long before {until} (policy.charge)."
        )
    if job.bound is not None:
        yield from explained(moment, **asdict(job.bound))
    yield from map(filled, job.says)
    if job.promotions:
        yield (
            f"It was promoted to tier 0 {_times(job.promotions)} because it had waited long; its "
            "tier counts only service attained since."
        )
    if case.waits:
        yield f"It has waited {duration(job.waited_s)} since it last ran or was submitted."


def _ranked_by(estimate: PublishedEstimate, tier: PublishedTier | None) -> str:
    source = ESTIMATED.get(estimate.source, estimate.source)
    if estimate.remaining_gpu_s is None:
        return f"It is not ranked {source}: {estimate.why_not}. It is ranked by attained service."
    up = ""
    if tier is not None and tier.tier > 0:
        limit = exact_gpu_hours(tier.from_gpu_s)
        up = f"; once that is less than {limit} it moves up to tier {tier.tier - 1}"
    needs = gpu_hours(estimate.remaining_gpu_s)
    return f"It is ranked by the service that it still needs: {needs}, {source}{up}."


def _way_to_next_tier(case: Case) -> str:
    job, tier = case.job, case.tier
    if tier is None or case.job.lane:
        return ""
    if goes_by_estimate(job):
        return ""
    if tier.to_gpu_s is None:
        return "; there is no tier below its own"
    move = f"; at {exact_gpu_hours(tier.to_gpu_s)} it moves down to tier {tier.tier + 1}"
    missing_gpu_s = tier.to_gpu_s - job.attained_since_promotion_gpu_s - job.inherited_gpu_s
    if not job.gpus or missing_gpu_s <= 0:
        return move
    return f"{move}, after {duration(missing_gpu_s / job.gpus)} more on {count(job.gpus, 'GPU')}"


def _why(case: Case) -> Iterator[str]:
    job = case.job
    yield printable(reason_text(job.reason).means)
    yield from _detail(job)
    if case.waits and job.slurm_reason not in WITHOUT_NEWS:
        yield f"Slurm's own reason: {printable(slurm_reason_text(job.slurm_reason))}."
    yield from _slurm_keeps_it(case)
    if job.start_on:
        style = f", to {printable(job.style)}" if job.style else ""
        yield f"It will start on {printable(job.start_on)}{style}."
    if job.left_to_slurm:
        yield f"Its nodes are left to Slurm: {printable(job.left_to_slurm)}."
    elif job.gpus > 1 and job.placement_because:  # one GPU cannot be spread
        style = PLACED.get(job.placement, job.placement)
        yield f"Placement: {printable(style)}: {printable(job.placement_because)}."
    if job.victims:
        victims = listed(tuple(case.who(victim) for victim in job.victims))
        yield f"It preempts {victims}."
    if job.preempted_for:
        yield f"It is preempted for {case.who(job.preempted_for)}."
    if job.blockers:
        yield "What it needs is held by these jobs, which may not be preempted for it:"


def _is_delayed_after_requeue(case: Case) -> bool:
    """Whether Slurm delays the job because it was preempted, and not until a time that its user
    chose."""
    job = case.job
    return case.waits and job.slurm_reason == "BeginTime" and job.preempted_at_s is not None


def _detail(job: PublishedJob) -> Iterator[str]:
    if job.detail and job.detail != job.slurm_reason:
        yield f"In detail: {printable(job.detail).rstrip('.')}."


def _slurm_keeps_it(case: Case) -> Iterator[str]:
    """Yield until when, or for which jobs, Slurm itself makes the job wait."""
    begins_s = case.job.begins_s
    if begins_s is not None and begins_s > case.now_s:
        left = duration(begins_s - case.now_s)
        yield f"Slurm does not start it before {moment(begins_s)}, in {left}."
    elif begins_s is None and case.state.acts and _is_delayed_after_requeue(case):
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
    blockers = case.job.blockers
    for blocker in blockers[:MOST_BLOCKERS]:
        because = printable(protection_text(blocker.protection).because)
        # Only a protection that expires by itself has an end time.
        left_s = 0.0 if blocker.until_s is None else blocker.until_s - case.now_s
        left = f"; {duration(left_s)} to go" if left_s > 0 else ""
        other = case.jobs.get(blocker.job_id)
        needs = progress_text.time_left(other) if other else NOTHING
        ends = "" if needs == NOTHING else f"; it needs {needs} more, by its own account"
        yield f"{_holding(case, blocker)}: {because}{left}{ends}."
    if len(blockers) > MOST_BLOCKERS:
        yield f"And {count(len(blockers) - MOST_BLOCKERS, 'job')} more."


def _holding(case: Case, blocker: Blocker) -> str:
    who = case.who(blocker.job_id)
    who = who[0].upper() + who[1:]
    other = case.jobs.get(blocker.job_id)
    if other is None:
        return who
    tier = "" if other.tier is None else f" (tier {other.tier})"
    where = f" on {printable(other.nodes)}" if other.nodes else ""
    what = count(other.gpus, "GPU") if other.gpus else "CPUs or memory"
    return f"{who}{tier}, {what}{where}"


def _preemptions(case: Case) -> Iterator[str]:
    job, appended = case.job, case.state.output_appended
    if job.lane:
        return
    if job.managed and appended:
        yield (
            "When it restarts it appends to its output files, unless it was submitted with "
            "--open-mode=truncate."
        )
    elif job.managed and appended is not None:
        # Slurm does not show whether the job was submitted with --open-mode.
        yield (
            "When it restarts its output files are truncated, unless it was submitted with "
            "--open-mode=append."
        )
    if job.signal:
        yield (
            f"Before it is preempted it gets SIG{printable(job.signal)} and "
            f"{duration(job.grace_s)} to save its state."
        )
        if job.progress and job.progress.source == ProgressSource.REPORTS.value:
            yield "It is requeued as soon as it reports that it has."
    yield from progress_text.longer_runs(job)
    yield from progress_text.shorter_runs(job)
    yield from _past_preemptions(case)


def _past_preemptions(case: Case) -> Iterator[str]:
    job = case.job
    if not job.preemptions:
        return
    by = f" by {case.who(job.preempted_by)}" if job.preempted_by else ""
    when = "" if job.preempted_at_s is None else f", {_ago(case, job.preempted_at_s)}"
    last = ", last" if job.preemptions > 1 and (by or when) else "," if by else ""
    yield f"It was preempted {_times(job.preemptions)}{last}{by}{when}."
    yield "It kept its job id and the service it attained."


def _stays(job: PublishedJob) -> bool:
    """Whether a job runs and is never preempted."""
    return bool(job.lane) and job.reason == Reason.RUNS_ON.value


def _next(case: Case) -> Iterator[str]:
    in_last_tier = case.tier is not None and case.tier.to_gpu_s is None
    ends = ends_text(case.job.reason, in_last_tier=in_last_tier)
    if _stays(case.job):
        ends = "It runs until it ends."
    elif case.job.ranks_last and waits_for_room(case.job):
        ends = "It starts on GPUs that no job before it needs: all others come before it."
    yield ends.replace("JOBID", printable(case.job.job_id))
    if waits_for_room(case.job) and case.job.managed:
        yield from _queue_before(case)
        yield from _estimate(case)


def _queue_before(case: Case) -> Iterator[str]:
    """Yield which pending jobs come before this one."""
    before = waits_before(case.job, case.state)
    if before:
        gpus = count(sum(job.gpus for job in before), "GPU")
        come, ask = ("comes", "asks") if len(before) == 1 else ("come", "ask")
        yield f"{count(len(before), 'waiting job')} {come} before it, and {ask} for {gpus}."


def _estimate(case: Case) -> Iterator[str]:
    """Yield when there could be room for the job, as far as that can be known."""
    if not case.job.blockers:
        return
    room = estimated_room(case.job, case.state, case.jobs)
    if room is None:
        yield "The time cannot be estimated: it depends on how long other jobs run."
        return
    left_s = room.at_s - case.now_s
    when = f"in about {duration(left_s)} ({moment(room.at_s)})" if left_s >= 1 else "from now on"
    events = [
        f"{listed(tuple(case.who(job_id) for job_id in job_ids))} {what}"
        for job_ids, what in (
            (room.ending, "will likely have ended"),
            (room.preemptible, "can be preempted for it"),
        )
        if job_ids
    ]
    yield (
        f"An estimate: {when} {' and '.join(events)}. Sooner if jobs end; later if new jobs come "
        "before it, or if that room is on nodes that do not suit it."
    )


def _ago(case: Case, at_s: float) -> str:
    return f"{duration(case.now_s - at_s)} ago ({moment(at_s)})"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
