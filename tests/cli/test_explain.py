"""The output of ``explain``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from slurm_tiresias.controller import driver
from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.model import EventRecord, Protection, Reason
from slurm_tiresias.status.published import (
    Blocker,
    PublishedEstimate,
    PublishedJob,
    PublishedStart,
    PublishedState,
)
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord
from slurm_tiresias.text import moment
from tests.cli.running import Site, error_of
from tests.cli.states import (
    NOW_S,
    busy_state,
    not_acting,
    progress,
    running,
    state,
    unmanaged,
    waiting,
)
from tests.controller.test_life import job as remembered

Build = Callable[..., PublishedJob]
START = PublishedStart(
    *(NOW_S - 90, 3.0, NOW_S + 9e4), least_s=NOW_S + 600, likely_s=NOW_S + 1500, most_s=NOW_S + 4800
)


def explained(site: Site, *jobs: PublishedJob, **changes: object) -> str:
    """Return the explanation of the first of these jobs."""
    site.publish(state(*jobs, **changes))
    result = site.run("explain", jobs[0].job_id)
    assert result.exit_code == 0, result.output
    output: str = result.stdout
    return output


def test_the_headline_says_what_the_job_is(site: Site) -> None:
    first = explained(site, running("12")).splitlines()[0]
    assert first == "Job 12 (train) of alice, partition gpu: RUNNING, holds 4 GPUs on gpu01."


def test_it_says_where_the_job_stands_and_how_far_the_next_tier_is(site: Site) -> None:
    output = explained(site, running("12", attained_gpu_s=2400.0, gpus=4, rank=6))
    assert "It is in tier 0 (0 is the highest, 2 the lowest), place 7 in the whole order." in output
    assert "attained 0.66 GPU-h (" in output
    assert "at 1 GPU-h it moves down to tier 1, after 5m00s more on 4 GPUs." in output


def test_explain_names_no_lower_tier_for_a_job_in_the_last_tier(site: Site) -> None:
    assert "there is no tier below its own." in explained(site, running("12", tier=2))


def test_after_a_promotion_the_distance_is_counted_from_there(site: Site) -> None:
    job = running(
        "12", promotions=2, gpus=4, attained_gpu_s=90000.0, attained_since_promotion_gpu_s=1200.0
    )
    output = explained(site, job)
    assert "It was promoted to tier 0 twice" in output
    assert "at 1 GPU-h it moves down to tier 1, after 10m00s more on 4 GPUs." in output


def test_it_says_what_a_job_is_charged_for_others_of_its_user(site: Site) -> None:
    job = running("12", gpus=4, attained_gpu_s=1200.0, inherited_gpu_s=1200.0)
    output = explained(site, job)
    assert (
        "0.33 GPU-h more count for its tier: the service of runs of other jobs of its user"
        in output
    )
    assert "ended not long before it first started (policy.charge)." in output
    assert "at 1 GPU-h it moves down to tier 1, after 5m00s more on 4 GPUs." in output
    new = waiting("13", inherited_gpu_s=1200.0)
    assert "ended not long before now (policy.charge)." in explained(site, new)


@pytest.mark.parametrize(("account", "payer"), [("lab", "account"), ("", "user")])
def test_it_says_if_a_job_is_charged_for_its_account(site: Site, account: str, payer: str) -> None:
    job = waiting("13", account=account, inherited_gpu_s=1200.0)
    site.publish(state(job, charge="account"))
    output = " ".join(site.run("explain", "13").stdout.split())
    assert f"for its tier: the service of runs of other jobs of its {payer} that ended" in output


def test_it_names_who_holds_what_the_job_needs_and_what_protects_them(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("explain", "40729").stdout
    assert (
        "  - Job 40718_3 of alice (tier 0), 1 GPU on gpu07: it has not yet run for the minimum "
        "time since it last started; 1m00s to go.\n"
    ) in output
    assert "Job 40600 of wei (tier 1), 32 GPUs on gpu[03-06]: its tier is not below" in output


def test_a_protection_that_has_run_out_meanwhile_is_not_timed(site: Site) -> None:
    over = Blocker("2", Protection.MIN_RUN.value, until_s=NOW_S - 1)
    assert "to go" not in explained(site, waiting("1", reason="protected", blockers=(over,)))


def test_jobs_that_wait_for_other_reasons_are_not_counted_as_ahead(site: Site) -> None:
    held = waiting("1", rank=0, reason="held", slurm_reason="JobHeldUser")
    dependent = waiting("2", rank=1, reason="slurm-waits", slurm_reason="Dependency")
    site.publish(state(held, dependent, waiting("3", rank=2, gpus=2), waiting("4", rank=3)))
    assert "1 waiting job comes before it, and asks for 2 GPUs." in (
        site.run("explain", "4").stdout
    )
    assert "before it" not in site.run("explain", "2").stdout


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Dependency", "Slurm's own reason: Dependency (another job has to end first)."),
        ("JobArrayTaskLimit", "JobArrayTaskLimit (as many tasks of its array run as its % allows)"),
        ("Something", "Slurm's own reason: Something.\n"),
    ],
)
def test_slurms_own_reason_is_put_into_words(site: Site, reason: str, said: str) -> None:
    assert said in explained(site, waiting("1", reason="slurm-waits", slurm_reason=reason))


def test_explain_says_who_may_release_a_held_job(site: Site) -> None:
    by_user = explained(site, waiting("1", reason="held", slurm_reason="JobHeldUser"))
    assert "Release it with: scontrol release 1." in by_user
    by_admin = explained(site, waiting("1", reason="held", slurm_reason="JobHeldAdmin"))
    assert "Ask the administrators, who alone can release it." in by_admin
    assert "scontrol release" not in by_admin


def test_a_job_without_gpus_holds_other_things(site: Site) -> None:
    blocker = Blocker("2", Protection.UNMANAGED.value, None)
    job = waiting("1", blockers=(blocker,))
    assert "Job 2 of root, CPUs or memory on gpu01: it is not" in explained(
        site, job, unmanaged("2", gpus=0)
    )


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            PublishedStart(NOW_S - 90, 3.0, NOW_S + 9e4),
            "It probably does not start within the next 1 d.",
        ),
        (
            replace(START, likely_s=None, beyond_s=NOW_S + 3600),
            "It probably does not start within the next 1 h, and not within 10 min.",
        ),
        (
            replace(START, likely_s=None, beyond_s=START.least_s or 0.0),
            "It probably does not start within the next 10 min.",
        ),
        (replace(START, likely_s=NOW_S + 9), "Starts in less than a minute (10 min"),
        (replace(START, most_s=None), "(10 min to later than can be said, nine times out of ten)"),
        (
            START,
            "Starts in about 25 min (10 min to 1 h 20 min, nine times out of ten). The estimate",
        ),
        (START, "expects new jobs as in the last 3 days, and was computed 2 min ago."),
        (replace(START, arrivals_days=0.0), "counts no jobs that are still to be submitted"),
        (
            replace(START, why_not="too few of the latest ranges at this site have held"),
            "When it starts cannot be said: too few of the latest ranges at this site have held.",
        ),
    ],
)
def test_explain_says_when_a_job_starts(site: Site, start: PublishedStart, said: str) -> None:
    assert said in " ".join(explained(site, waiting("1", start=start)).split())


def test_explain_does_not_count_the_jobs_ahead_if_jobs_are_private(site: Site) -> None:
    output = explained(site, waiting("2", rank=1), waiting("1", rank=0), only_of="alice")
    assert "comes before it" not in output


@pytest.mark.parametrize(("tier", "said"), [(0, "or move down below its own tier"), (2, "end.")])
def test_a_job_in_the_last_tier_has_no_next_tier(site: Site, tier: int, said: str) -> None:
    output = explained(site, waiting("1", tier=tier))
    (next_,) = (part for part in output.split("\n\n") if part.startswith("What happens next"))
    assert said in next_
    assert ("below" in next_) is (tier == 0)


def test_it_says_when_a_job_may_begin(site: Site) -> None:
    begins = {"slurm_reason": "BeginTime", "reason": "slurm-waits", "begins_s": NOW_S + 7200}
    said = "Slurm does not start it before Nov 15 00:13:20, in 2h00m."
    assert said in explained(site, waiting("1", **begins))
    site.publish(not_acting(state(waiting("1", **begins))))
    assert said in site.run("explain", "1").stdout


def test_it_says_that_a_preempted_job_is_delayed_by_its_requeue(site: Site) -> None:
    said = "Slurm delays a requeued job; the controller ends the delay"
    begins = {"slurm_reason": "BeginTime", "reason": "slurm-waits"}
    assert said not in explained(site, waiting("1", **begins))
    preempted = waiting("1", preempted_at_s=NOW_S - 3, **begins)
    assert said in explained(site, preempted)
    assert said not in explained(site, replace(preempted, begins_s=NOW_S + 60))


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_it_names_its_dependencies(site: Site, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    class Slurm:
        def dependency(self, key: str) -> str:
            return {"1": "afterok:12(unfulfilled)"}[key]

    monkeypatch.setattr(driver, "driver", lambda _config: Slurm())
    job = waiting("1", slurm_reason="Dependency", reason="slurm-waits")
    assert "It depends on afterok:12(unfulfilled)." in explained(site, job, mode=mode)


def test_without_slurm_a_dependency_is_explained_without_its_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_config: object) -> None:
        raise SlurmUnreachableError("slurmctld is down", "start it")

    monkeypatch.setattr(driver, "driver", fail)
    output = explained(site, waiting("1", slurm_reason="Dependency", reason="slurm-waits"))
    assert "Dependency (another job has to end first)." in output
    assert "depends on" not in output


def test_a_pending_unmanaged_job_shows_its_place_by_slurms_priority(site: Site) -> None:
    job = unmanaged("1", state="pending", slurm_state="PENDING", nodes="", slurm_place=4)
    said = "By Slurm's own priority it has place 5 among the jobs that wait in partition gpu."
    assert said in " ".join(explained(site, job).split())


def test_it_says_how_many_come_before_it(site: Site) -> None:
    job, first, second = waiting("1", rank=2), waiting("2", rank=0), waiting("3", rank=1)
    output = explained(site, job, first, running("4", rank=3))
    assert "1 waiting job comes before it, and asks for 4 GPUs." in output
    output = explained(site, job, first, second, unmanaged("5"))
    assert "2 waiting jobs come before it, and ask for 8 GPUs." in output
    assert "before it, and" not in explained(site, replace(job, rank=0))


@pytest.mark.parametrize(
    ("appended", "said"),
    [(True, "it appends to its output files"), (False, "truncated, unless it was submitted with")],
)
def test_explain_says_if_a_restart_keeps_the_log(site: Site, appended: bool, said: str) -> None:
    assert said in explained(site, running("1"), output_appended=appended)
    assert said not in explained(site, unmanaged("1"), output_appended=appended)
    assert "output files" not in explained(site, running("1")), "an older controller"


def test_explain_says_when_a_running_job_may_be_preempted(site: Site) -> None:
    assert "\nWhy it runs\n" in explained(site, running("1"))
    assert "\nWhy it runs\n" in explained(site, unmanaged("1"))
    assert "\nWhy it stops\n" in explained(site, running("1", reason="vacating"))


@pytest.mark.parametrize("protection", Protection)
def test_every_protection_is_explained(site: Site, protection: Protection) -> None:
    blocked = waiting(
        "1", reason="protected", blockers=(Blocker("2", protection.value, until_s=None),)
    )
    assert "  - Job 2 of alice (tier 0), 4 GPUs on gpu01: " in explained(
        site, blocked, running("2")
    )


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(site: Site, reason: Reason) -> None:
    output = explained(site, waiting("1", reason=reason.value))
    assert "What happens next" in output and "JOBID" not in output


def test_many_blockers_are_summed_up(site: Site) -> None:
    blockers = tuple(
        Blocker(str(i), Protection.NEAR_TIER.value, until_s=None) for i in range(100, 120)
    )
    output = explained(site, waiting("1", reason="protected", blockers=blockers))
    assert "  - Job 107: likewise." in output and "Job 108:" not in output
    assert "And 12 jobs more." in output


def test_it_says_who_preempted_the_job_and_when(site: Site) -> None:
    output = explained(
        site,
        waiting("1", preemptions=2, preempted_by="9", preempted_at_s=NOW_S - 7200),
        running("9", user="bob"),
    )
    assert "It was preempted twice, last by job 9 of bob, 2h00m ago (" in output
    output = explained(site, waiting("1", preemptions=1, preempted_by="9"))
    assert "It was preempted once, by job 9.\n" in output


def test_a_starting_job_names_its_nodes_and_victims(site: Site) -> None:
    site.publish(busy_state())
    assert "It will start on gpu02, to consolidate." in site.run("explain", "40731").stdout
    assert "It preempts job 40655 of jsmith." in site.run("explain", "40731").stdout
    assert "It is preempted for job 40731 of priya." in site.run("explain", "40655").stdout


def test_a_job_that_never_fits_tells_its_user_what_to_do(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("explain", "40735").stdout
    assert "In detail: asks 512 GPUs; the nodes it may use have 256." in output
    assert "Cancel it, and submit it again asking for less" in output


def test_an_unmanaged_job_is_explained_too(site: Site) -> None:
    output = explained(site, unmanaged("1", detail="partition debug is not managed"))
    assert "It has no tier, and the service it attains is not counted." in output
    assert "partition debug is not managed" in output


FICTION = re.compile(
    r"it starts|is being preempted|is leaving|set aside|is preempted|is to start|Room is made|"
    r"makes room for|comes back|can be preempted|GPUs are free for it",
    re.IGNORECASE,
)


@pytest.mark.parametrize("mode", ["shadow", "paused", "stopped"])
def test_without_acting_explain_shows_nothing_as_done_by_us(site: Site, mode: str) -> None:
    told = not_acting(busy_state(), mode)
    site.publish(told)
    for job in told.jobs:
        output = site.run("explain", job.job_id).stdout
        assert not FICTION.search(output), output
        parts = [part.splitlines()[0] for part in output.split("\n\n")]
        assert parts[1:4] == [
            "What Slurm does",
            "What the controller would do",
            "Tier and rank in the controller",
        ]


def part_of(site: Site, job_id: str, title: str) -> str:
    """Return the text of one section as one line."""
    parts = site.run("explain", job_id).stdout.split("\n\n")
    return next(" ".join(p.split()[len(title.split()) :]) for p in parts if p.startswith(title))


def test_in_shadow_mode_explain_separates_slurms_actions_from_the_controllers(site: Site) -> None:
    site.publish(not_acting(busy_state()))
    assert part_of(site, "40731", "What Slurm does") == (
        "It waits: Priority (Slurm tries others before it)."
    )
    assert part_of(site, "40731", "What the controller would do") == (
        "The controller runs in shadow mode: it decides and does nothing; Slurm schedules. It "
        "would start now, on GPUs of jobs that come later in the controller's order and are in a "
        "lower tier. It would start on gpu02, to consolidate. It would preempt job 40655 of jsmith."
    )
    assert part_of(site, "40655", "What Slurm does").startswith("It runs on gpu02, since Nov 14 ")
    would = part_of(site, "40655", "What the controller would do")
    assert would.endswith("It would be preempted for job 40731 of priya.")
    would = part_of(site, "40729", "What the controller would do")
    assert "It would wait: jobs of lower tiers hold the GPUs it needs, but may not be" in would
    assert (
        "These jobs hold what it needs, and would not be preempted for it: - Job 40718_3" in would
    )
    would = part_of(site, "40712", "What the controller would do")
    assert "It would run on: no job before it in the controller's order may take its GPUs." in would


def test_json_in_shadow_mode_has_slurms_actions_and_the_controllers(site: Site) -> None:
    site.publish(not_acting(busy_state()))
    answer = json.loads(site.run("explain", "40731", "--json").stdout)
    assert (answer["mode"], answer["job"]["slurm_reason"]) == ("shadow", "Priority")
    assert answer["job"]["would"] == "would start now; would preempt 40655"
    assert answer["room_expected_at_s"] is None
    jobs = json.loads(site.run("status", "--json").stdout)["jobs"]
    assert {job["job_id"]: job["would"] for job in jobs}["40655"] == "would be preempted for 40731"


def test_a_job_that_has_ended_is_explained_from_the_ledger(site: Site) -> None:
    site.publish(busy_state())
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ended = replace(remembered("12", "alice"), ended_s=NOW_S - 60)
        ledger.jobs.put([ended, remembered("13", "alice")])
        ledger.runs.put([RunRecord("12", NOW_S - 90, NOW_S - 60, 30.0, 4, True)])
    result = site.run("explain", "12")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        "Job 12 has ended, 1m00s ago (Nov 14 22:12:20). Its recorded history:\n\nJob 12 ("
    )
    assert "30s" in result.stdout
    answer = json.loads(site.run("explain", "12", "--json").stdout)
    assert answer["job"] is None
    sentence = "Job 12 has ended, 1m00s ago (Nov 14 22:12:20)."
    assert answer["sections"][0]["sentences"] == [sentence]
    # It has not ended, and the last cycle did not see it.
    assert site.run("explain", "13").exit_code == 1


def test_a_detail_that_is_slurms_own_reason_is_said_once(site: Site) -> None:
    job = waiting("1", reason="held", detail="JobHeldUser", slurm_reason="JobHeldUser")
    assert explained(site, job).count("JobHeldUser") == 1


def test_it_shows_what_the_controller_says_of_a_job_with_its_numbers_in_words(site: Site) -> None:
    said = f"Idle since {{{NOW_S - 900} moment}}, for {{900.0 duration}}: {{7200.0 gpu_hours}}."
    text = " ".join(explained(site, running("1", says=(said, "Or {not} so."))).split())
    assert f"Idle since {moment(NOW_S - 900)}, for 15m00s: 2.0 GPU-h. Or {{not}} so." in text


def test_it_says_that_a_job_leaves_idle_gpus_and_that_it_ranks_last_afterwards(site: Site) -> None:
    leaves = running("1", action="preempt", reason="idle-gpus")
    text = " ".join(explained(site, leaves).split())
    assert "Why it stops" in text
    assert "so it is preempted even if no other job waits" in text
    text = " ".join(explained(site, waiting("1", ranks_last=True)).split())
    assert "all others come before it" in text
    assert "below its own tier" not in text


@pytest.mark.parametrize(
    ("kind", "text", "of_the_job", "of_the_other"),
    [
        (
            "preempted",
            "restart 1",
            "preempted by job 4 (restart 1)",
            "preempted job 3 (its restart 1)",
        ),
        ("preempted", "", "preempted by job 4", "preempted job 3"),
        (
            "would",
            "be preempted",
            "would have been preempted for job 4 (in shadow mode)",
            "would have preempted job 3 (in shadow mode)",
        ),
        ("backed-off", "why", "backed off: why", "job 3 backed off: why"),
        (
            "signal-refused",
            "USR1: denied",
            "Slurm refused its checkpoint signal, before it is preempted for job 4: USR1: denied",
            "Slurm refused the checkpoint signal of job 3: USR1: denied",
        ),
    ],
)
def test_an_event_of_two_jobs_is_worded_from_the_view_of_each(
    site: Site, kind: str, text: str, of_the_job: str, of_the_other: str
) -> None:
    event = EventRecord(NOW_S, kind, "3", "4", text)
    assert explained(site, running("3"), events=(event,)).endswith(f"): {of_the_job}\n")
    assert explained(site, running("4"), events=(event,)).endswith(f"): {of_the_other}\n")


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("demoted", "from tier 0 to tier 1", "demoted from tier 0 to tier 1"),
        ("would", "start on n1", "would have started on n1 (in shadow mode)"),
        ("requeued", "restart 2", "requeued: restart 2"),
        ("node-failed", "n2 is DOWN", "node failed: n2 is DOWN"),
        ("failed", "Node is down", "Slurm refused a change to it: Node is down"),
        ("promoted", "", "promoted"),
        (
            "idle-signalled",
            "no GPU used for 1800 s, restart 1",
            "to be preempted for its idle GPUs: no GPU used for 1800 s, restart 1",
        ),
        ("idle-requeued", "restart 2", "requeued for its idle GPUs: restart 2"),
        (
            "idle-spared",
            "1 of its 4 GPUs is used",
            "not preempted for its idle GPUs after all: 1 of its 4 GPUs is used",
        ),
    ],
)
def test_an_event_of_one_job_is_worded(site: Site, kind: str, text: str, said: str) -> None:
    event = EventRecord(NOW_S, kind, "3", "", text)
    assert explained(site, running("3"), events=(event,)).endswith(f"): {said}\n")


def test_the_latest_events_of_the_job_are_listed_oldest_first(site: Site) -> None:
    events = tuple(EventRecord(NOW_S - i, "demoted", "1", "", f"e{i}") for i in range(20))
    output = explained(site, waiting("1"), events=events)
    assert [line[-2:] for line in output.splitlines()[-2:]] == ["e1", "e0"]
    assert "e10" not in output


def test_a_task_of_an_array_is_found_by_the_array_where_it_is_the_only_one(site: Site) -> None:
    site.publish(busy_state())
    assert site.run("explain", "40718").stdout.startswith("Job 40718_3 ")


def test_a_het_job_asks_which_part(site: Site) -> None:
    site.publish(state(waiting("5+0"), waiting("5+1")))
    result = site.run("explain", "5")
    assert result.exit_code == 2
    assert error_of(result) == "Job 5 has several parts: 5+0 and 5+1. Name one of them."


def an_array(**changes: object) -> PublishedState:
    """An array of 500 tasks: two run, one of them demoted; one starts; Slurm holds back ten."""
    return state(
        running("5_0", rank=0, attained_gpu_s=7200.0, tier=1),
        running("5_1", rank=1, attained_gpu_s=3600.0),
        waiting("5_2", rank=2, action="start", reason="starts"),
        *(waiting(f"5_{i}", rank=i) for i in range(3, 490)),
        *(
            waiting(f"5_{i}", rank=i, reason="slurm-waits", slurm_reason="JobArrayTaskLimit")
            for i in range(490, 500)
        ),
        waiting("55_1", rank=500),
        **changes,
    )


def test_an_array_is_summed_up_by_tier_and_reason(site: Site) -> None:
    site.publish(an_array())
    result = site.run("explain", "5")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "Array 5 (train) of alice, partition gpu: 500 tasks that run or wait; 2 run, 498 wait."
    )
    assert lines[2:6] == [
        "Its tasks by tier",
        "  They have attained 3.0 GPU-h in all.",
        "  - Tier 0: 1 run on 4 GPUs, 498 wait for 1,992 GPUs.",
        "  - Tier 1: 1 run on 4 GPUs.",
    ]
    why = lines[lines.index("Reasons, the most frequent first") + 1 :][:4]
    assert why[0].startswith(
        "  - 487 pending (5_[3-489]), no room. Its nodes have too few idle GPUs"
    )
    assert "It starts when jobs before it end" in why[0]
    assert why[1].startswith(
        "  - 10 pending (5_[490-499]), Slurm waits: JobArrayTaskLimit (as many tasks of its array"
    )
    assert why[2].startswith("  - 2 running (5_[0-1]), runs. ")
    assert why[3].startswith("  - 1 pending (5_2), starts. ")
    assert "The first waiting task is 5_2" in result.stdout
    assert "tiresias-slurm explain 5_2" in result.stdout


def test_an_array_in_shadow_mode_shows_slurms_and_would_be_actions_apart(site: Site) -> None:
    site.publish(not_acting(an_array()))
    output = " ".join(site.run("explain", "5").stdout.split())
    assert "it decides and does nothing; Slurm schedules." in output
    assert (
        "- 1 pending (5_2), by Slurm: Priority (Slurm tries others before it). "
        "The controller would start now." in output
    )
    assert "The controller would wait: no room." in output
    assert "it starts now" not in output


def test_an_array_for_programs_has_its_tiers_and_reasons(site: Site) -> None:
    site.publish(an_array())
    said = json.loads(site.run("explain", "5", "--json").stdout)
    assert said["array"] == "5" and said["mode"] == "enforce"
    assert said["tiers"][0] == {
        "tier": 0,
        "running_tasks": 1,
        "running_gpus": 4,
        "pending_tasks": 498,
        "pending_gpus": 1992,
    }
    assert [len(reason["tasks"]) for reason in said["reasons"]] == [487, 10, 2, 1]
    assert said["reasons"][1]["slurm_reason"] == "JobArrayTaskLimit"


def test_an_unknown_job_in_a_stale_state_blames_the_controller(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 600))
    assert site.run("explain", "99").exit_code == 3


def test_the_state_of_a_stopped_controller_is_explained_with_a_warning(site: Site) -> None:
    site.publish(busy_state(mode="stopped"))
    result = site.run("explain", "40712")
    assert result.exit_code == 3 and "The controller was stopped: until it is" in result.stdout
    assert error_of(result).startswith("The controller was stopped; its last cycle was 4s ago. ")
    assert error_of(site.run("explain", "99")).startswith("The controller was stopped; ")


def test_json_holds_the_job_its_blockers_and_the_sentences(site: Site) -> None:
    site.publish(busy_state())
    answer = json.loads(site.run("explain", "40729", "--json").stdout)
    assert answer["schema"] == 1 and answer["job"]["job_id"] == "40729"
    assert [job["job_id"] for job in answer["blocking_jobs"]] == ["40718_3", "40600"]
    assert answer["tier"]["to_gpu_s"] == 3600.0
    assert answer["sections"][0]["title"] == "Tier and rank"


def test_times_beyond_the_calendar_are_no_traceback(site: Site) -> None:
    job = waiting("1", preemptions=1, preempted_at_s=1e300, attained_gpu_s=1e300, waited_s=-1.0)
    assert "It was preempted once" in explained(site, job)


@pytest.mark.parametrize("build", [waiting, running])
def test_it_says_by_which_rule_and_number_a_job_is_placed(site: Site, build: Build) -> None:
    because = "largest tensor 74 % of vgg16 (built in), limit 50 %"
    job = build("12", placement="consolidate", placement_because=because)
    assert f"Placement: consolidated: {because}." in explained(site, job)
    assert "Placement" not in explained(site, replace(job, gpus=1))


# Progress


def test_explain_shows_the_time_that_a_reporting_job_still_needs(site: Site) -> None:
    told = progress(3700, 10_000, remaining_least_s=7500.0, remaining_most_s=8400.0)
    output = explained(site, running("12", progress=told))
    assert "It is at step 3,700 of 10,000 (37 %), by its own reports, " in output
    assert "It last saved after step 3,700, " in output
    assert "It needs 2h05m to 2h20m more, and ends about " in output


def test_a_stalled_job_shows_since_when_and_has_no_estimate(site: Site) -> None:
    told = progress(12, 90, quiet_since_s=NOW_S - 900, saved_step=None)
    output = explained(site, running("12", progress=told))
    assert "It has made no step since Nov 14 21:58:20" in output
    assert "It has not said that it saved anything." in output
    assert "more, and ends" not in output


def test_a_job_on_a_silent_node_is_not_shown_as_stalled(site: Site) -> None:
    output = explained(site, running("12", progress=progress(12, 90, lost=True)))
    assert "Nothing has come from its node for minutes" in output
    assert "made no step" not in output


def test_explain_shows_the_step_at_which_a_waiting_job_will_resume(site: Site) -> None:
    output = explained(site, waiting("12", progress=progress(450)))
    assert "Its last run reached step 450 of 1,000 (45 %), by its own reports." in output
    assert ", from which it would go on." in output
    assert "Once it runs again it needs 8m42s to 9m37s more" in output


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        (
            PublishedEstimate("reports", 31_000.0),
            "It is ranked by the service that it still needs: 8.6 GPU-h, by its own reports; "
            "once that is less than 1 GPU-h it moves up to tier 0.",
        ),
        (
            PublishedEstimate("history", 9000.0),
            "By the run times of ended jobs like it, it still needs 2.5 GPU-h: of the waiting jobs "
            "of a tier, those that need less go first. That is why its tier is lower than by",
        ),
        (
            PublishedEstimate("reports", None, "it was promoted"),
            "It is not ranked by its own reports: it was promoted. It is ranked by attained",
        ),
    ],
)
def test_explain_shows_the_service_by_which_a_job_is_ranked(
    site: Site, estimate: PublishedEstimate, said: str
) -> None:
    assert said in " ".join(explained(site, running("1", tier=1, estimate=estimate)).split())


def _one_line(site: Site, job: PublishedJob) -> str:
    return " ".join(explained(site, job).split())


def test_explain_says_why_a_job_gets_longer_runs_and_what_to_do(site: Site) -> None:
    output = _one_line(site, waiting("5", program_lost=1, min_run_s=240.0))
    assert "The last preemption of jobs of alice named train lost all their work" in output
    assert "not preempted for 4m00s after each start. Make it save when it gets SIGTERM" in output
    output = _one_line(site, running("5", stuck_runs=2, preemptions=3, min_run_s=960.0))
    assert "Its last 2 runs saved nothing" in output
    assert "not preempted for 16m00s after each start" in output


def test_explain_advises_saves_only_to_jobs_that_are_not_known_to_save(site: Site) -> None:
    advice = "Have it save checkpoints"
    unknown = replace(progress(5), saved_step=None, saved_s=None, resumed_step=None)
    output = _one_line(site, running("5", progress=unknown))
    assert advice in output and "has not said that it saved" in output
    output = _one_line(site, running("5", progress=replace(unknown, resumed_step=3)))
    assert advice not in output and "It went on from a save of step 3." in output
    for known in (running("5", progress=progress(5)), running("5", signal="URG", grace_s=60.0)):
        assert advice not in _one_line(site, known)


def test_explain_says_that_a_victim_is_requeued_once_it_has_saved(site: Site) -> None:
    output = _one_line(site, running("5", progress=progress(5), signal="URG", grace_s=60.0))
    assert (
        "it gets SIGURG and 1m00s to save its state. It is requeued as soon as it reports" in output
    )
