"""What ``explain`` says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_tiresias.controller.published import Blocker, PublishedEvent, PublishedJob
from slurm_tiresias.model import Guard, Reason
from tests.cli.running import Site, error_of
from tests.cli.states import NOW_S, busy_state, running, state, unmanaged, waiting

Build = Callable[..., PublishedJob]
HOSTILE = "\x1b[2J\u202e[bold]\nx"


def explained(site: Site, *jobs: PublishedJob, **changes: object) -> str:
    """What is said of the first of these jobs."""
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
    assert "attained 40m00s of GPU time" in output
    assert "at 1h it moves down to tier 1, after 5m00s more on 4 GPUs." in output


def test_in_the_last_tier_there_is_nothing_below(site: Site) -> None:
    assert "there is no tier below its own." in explained(site, running("12", tier=2))


def test_after_a_promotion_the_distance_is_counted_from_there(site: Site) -> None:
    job = running(
        "12",
        promotions=2,
        gpus=4,
        attained_gpu_s=90000.0,
        attained_since_promotion_gpu_s=1200.0,
    )
    output = explained(site, job)
    assert "It was promoted to tier 0 2 times" in output
    assert "at 1h it moves down to tier 1, after 10m00s more on 4 GPUs." in output


def test_it_says_what_a_job_is_charged_for_others_of_its_user(site: Site) -> None:
    job = running("12", gpus=4, attained_gpu_s=1200.0, inherited_gpu_s=1200.0)
    output = explained(site, job)
    assert "20m00s more count for its tier: what other jobs of its user used" in output
    assert "ended not long before it first started (policy.charge)." in output
    assert "at 1h it moves down to tier 1, after 5m00s more on 4 GPUs." in output
    new = waiting("13", inherited_gpu_s=1200.0)
    assert "ended not long before now (policy.charge)." in explained(site, new)


@pytest.mark.parametrize(("account", "payer"), [("lab", "account"), ("", "user")])
def test_it_says_when_it_is_the_account_that_a_job_is_charged_for(
    site: Site, account: str, payer: str
) -> None:
    job = waiting("13", account=account, inherited_gpu_s=1200.0)
    site.publish(state(job, charge="account"))
    output = " ".join(site.run("explain", "13").stdout.split())
    assert f"for its tier: what other jobs of its {payer} used whose runs" in output


def test_it_names_who_holds_what_the_job_needs_and_what_protects_them(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("explain", "40729").stdout
    assert (
        "  - Job 40718_3 of alice (tier 0), 1 GPU on gpu07: it has not yet run for the minimum "
        "time since it last started; 1m00s to go.\n"
    ) in output
    assert "Job 40600 of wei (tier 1), 32 GPUs on gpu[03-06]: it sits in the same tier" in output


def test_a_protection_that_has_run_out_meanwhile_is_not_timed(site: Site) -> None:
    over = Blocker("2", Guard.MIN_RUN.value, until_s=NOW_S - 1)
    assert "to go" not in explained(site, waiting("1", reason="guarded", blockers=(over,)))


def same_tier(job_id: str) -> Blocker:
    return Blocker(job_id, Guard.SAME_TIER.value, until_s=None)


def test_who_waits_for_something_else_does_not_come_before_anybody(site: Site) -> None:
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


def test_who_may_release_a_held_job_depends_on_who_held_it(site: Site) -> None:
    by_user = explained(site, waiting("1", reason="held", slurm_reason="JobHeldUser"))
    assert "Release it with: scontrol release 1." in by_user
    by_admin = explained(site, waiting("1", reason="held", slurm_reason="JobHeldAdmin"))
    assert "Ask the administrators, who alone can release it." in by_admin
    assert "scontrol release" not in by_admin


def test_a_job_without_gpus_holds_other_things(site: Site) -> None:
    blocker = Blocker("2", Guard.UNMANAGED.value, None)
    job = waiting("1", blockers=(blocker,))
    assert "Job 2 of root, CPUs or memory on gpu01: it is not" in explained(
        site, job, unmanaged("2", gpus=0)
    )


def test_room_that_may_be_made_already_is_not_timed(site: Site) -> None:
    over = Blocker("2", Guard.MIN_RUN.value, until_s=NOW_S - 1)
    job = waiting("1", reason="guarded", blockers=(over,))
    site.publish(state(job, running("2")))
    assert "An estimate: from now on job 2 of alice can be" in site.run("explain", "1").stdout


def test_until_when_is_estimated_by_when_others_come_down_a_tier(site: Site) -> None:
    job = waiting("1", gpus=8, reason="guarded", blockers=(same_tier("2"), same_tier("3")))
    soon = running("2", gpus=4, attained_gpu_s=2400.0)
    later = running("3", gpus=4, attained_gpu_s=1200.0)
    assert (
        "An estimate: within 9m56s (Nov 14 22:23:16) job 2 of alice and job 3 of alice can be "
        "preempted for it. Sooner if jobs end; later if jobs that come before it take that room."
    ) in explained(site, job, soon, later)


def test_the_estimate_names_no_more_jobs_than_are_needed(site: Site) -> None:
    guarded = Blocker("2", Guard.MIN_RUN.value, until_s=NOW_S + 60)
    job = waiting("1", gpus=4, reason="guarded", blockers=(guarded, same_tier("3")))
    output = explained(site, job, running("2", tier=1), running("3", attained_gpu_s=1200.0))
    assert "within 1m00s (Nov 14 22:14:20) job 2 of alice can be preempted" in output


@pytest.mark.parametrize(
    ("tier", "policy", "guard"),
    [
        (2, "2d-las", Guard.SAME_TIER),
        (0, "2d-history", Guard.SAME_TIER),
        (0, "2d-las", Guard.UNMANAGED),
    ],
)
def test_where_nothing_is_known_no_time_is_made_up(
    site: Site, tier: int, policy: str, guard: Guard
) -> None:
    blockers = (Blocker("2", guard.value, until_s=None),)
    job = waiting("1", tier=tier, reason="guarded", blockers=blockers)
    output = explained(site, job, running("2"), policy=policy)
    assert "An estimate" not in output
    assert "cannot be said: nobody knows how long these jobs run." in output


def test_it_says_how_many_come_before_it(site: Site) -> None:
    job, first, second = waiting("1", rank=2), waiting("2", rank=0), waiting("3", rank=1)
    output = explained(site, job, first, running("4", rank=3))
    assert "1 waiting job comes before it, and asks for 4 GPUs." in output
    output = explained(site, job, first, second, unmanaged("5"))
    assert "2 waiting jobs come before it, and ask for 8 GPUs." in output
    assert "before it, and" not in explained(site, replace(job, rank=0))


@pytest.mark.parametrize(
    ("appended", "said"),
    [(True, "it adds to its output files"), (False, "truncated, unless it was submitted with")],
)
def test_it_says_what_becomes_of_the_log_when_the_job_starts_again(
    site: Site, appended: bool, said: str
) -> None:
    assert said in explained(site, running("1"), output_appended=appended)
    assert said not in explained(site, unmanaged("1"), output_appended=appended)
    assert "output files" not in explained(site, running("1")), "an older controller"


def test_a_running_job_stops_only_where_it_is_preempted(site: Site) -> None:
    assert "\nWhy it runs\n" in explained(site, running("1"))
    assert "\nWhy it runs\n" in explained(site, unmanaged("1"))
    assert "\nWhy it stops\n" in explained(site, running("1", reason="vacating"))


@pytest.mark.parametrize("guard", Guard)
def test_every_guard_is_explained(site: Site, guard: Guard) -> None:
    blocked = waiting("1", reason="guarded", blockers=(Blocker("2", guard.value, until_s=None),))
    assert "  - Job 2 of alice (tier 0), 4 GPUs on gpu01: " in explained(
        site, blocked, running("2")
    )


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(site: Site, reason: Reason) -> None:
    output = explained(site, waiting("1", reason=reason.value))
    assert "What happens next" in output and "JOBID" not in output


def test_many_blockers_are_summed_up(site: Site) -> None:
    blockers = tuple(Blocker(str(i), Guard.SAME_TIER.value, until_s=None) for i in range(100, 120))
    output = explained(site, waiting("1", reason="guarded", blockers=blockers))
    assert "  - Job 107:" in output and "Job 108:" not in output
    assert "And 12 jobs more." in output


def test_it_says_who_preempted_the_job_and_when(site: Site) -> None:
    output = explained(
        site,
        waiting("1", preemptions=2, preempted_by="9", preempted_at_s=NOW_S - 7200),
        running("9", user="bob"),
    )
    assert "It was preempted 2 times, last by job 9 of bob, 2h00m ago (" in output
    output = explained(site, waiting("1", preemptions=1, preempted_by="9"))
    assert "It was preempted once, by job 9.\n" in output


def test_a_starting_job_says_where_and_for_whom_room_is_made(site: Site) -> None:
    site.publish(busy_state())
    assert "It is to start on gpu02, to consolidate." in site.run("explain", "40731").stdout
    assert "Room is made by preempting job 40655 of jsmith." in site.run("explain", "40731").stdout
    assert "It makes room for job 40731 of priya." in site.run("explain", "40655").stdout


def test_a_job_that_never_fits_tells_its_user_what_to_do(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("explain", "40735").stdout
    assert "In detail: asks 512 GPUs; the nodes it may use have 256." in output
    assert "Cancel it, and submit it again asking for less" in output


def test_an_unmanaged_job_is_explained_too(site: Site) -> None:
    output = explained(site, unmanaged("1", detail="partition debug is not managed"))
    assert "It has no tier, and the service it attains is not counted." in output
    assert "partition debug is not managed" in output


def test_shadow_and_pause_are_not_kept_secret(site: Site) -> None:
    assert "shadow mode" in explained(site, waiting("1"), mode="shadow")
    assert "The controller is paused" in explained(site, waiting("1"), mode="paused")


def test_a_detail_that_is_slurms_own_reason_is_said_once(site: Site) -> None:
    job = waiting("1", reason="held", detail="JobHeldUser", slurm_reason="JobHeldUser")
    assert explained(site, job).count("JobHeldUser") == 1


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
        ("would", "preempt for 4", "would be preempted for job 4", "would preempt job 3"),
        ("gave-up", "why", "gave up: why", "job 3 gave up: why"),
    ],
)
def test_an_event_of_two_jobs_is_told_from_the_side_of_each(
    site: Site, kind: str, text: str, of_the_job: str, of_the_other: str
) -> None:
    event = PublishedEvent(NOW_S, kind, "3", "4", text)
    assert explained(site, running("3"), events=(event,)).endswith(f"): {of_the_job}\n")
    assert explained(site, running("4"), events=(event,)).endswith(f"): {of_the_other}\n")


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("demoted", "from tier 0 to tier 1", "demoted from tier 0 to tier 1"),
        ("would", "start on n1", "would start on n1"),
        ("requeued", "restart 2", "requeued: restart 2"),
        ("promoted", "", "promoted"),
    ],
)
def test_an_event_of_one_job_is_told(site: Site, kind: str, text: str, said: str) -> None:
    event = PublishedEvent(NOW_S, kind, "3", "", text)
    assert explained(site, running("3"), events=(event,)).endswith(f"): {said}\n")


def test_the_latest_events_of_the_job_are_listed_oldest_first(site: Site) -> None:
    events = tuple(PublishedEvent(NOW_S - i, "demoted", "1", "", f"e{i}") for i in range(20))
    output = explained(site, waiting("1"), events=events)
    assert [line[-2:] for line in output.splitlines()[-2:]] == ["e1", "e0"]
    assert "e10" not in output


def test_a_task_of_an_array_is_found_by_the_array_where_it_is_the_only_one(site: Site) -> None:
    site.publish(busy_state())
    assert site.run("explain", "40718").stdout.startswith("Job 40718_3 ")


def test_an_array_of_several_tasks_asks_which(site: Site) -> None:
    site.publish(state(waiting("5_1"), waiting("5_2")))
    result = site.run("explain", "5")
    assert result.exit_code == 2
    assert error_of(result) == "Job 5 has several parts: 5_1 and 5_2. Name one of them."


def test_an_unknown_job_is_exit_code_one(site: Site) -> None:
    site.publish(busy_state())
    result = site.run("explain", "99")
    assert result.exit_code == 1
    assert error_of(result).startswith("The controller knows no job 99: it has ended, ")


def test_an_unknown_job_in_a_stale_state_blames_the_controller(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 600))
    assert site.run("explain", "99").exit_code == 3


def test_a_stale_state_is_explained_and_complained_about(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 600))
    result = site.run("explain", "40712")
    assert result.exit_code == 3 and "Where it stands" in result.stdout
    assert "has published nothing for 10m00s" in error_of(result)


def test_a_state_of_a_stopped_controller_is_explained_and_complained_about(site: Site) -> None:
    site.publish(busy_state(mode="stopped"))
    result = site.run("explain", "40712")
    assert result.exit_code == 3 and "The controller was stopped: until it is" in result.stdout
    assert error_of(result).startswith("The controller was stopped; its last cycle was 4s ago. ")
    assert error_of(site.run("explain", "99")).startswith("The controller was stopped; ")


@pytest.mark.parametrize("job_id", ["foo", "", "-1", "1;2", "1_", "\x1b[2J", "1" * 5000])
def test_what_is_no_job_id_is_refused(site: Site, job_id: str) -> None:
    site.publish(busy_state())
    result = site.run("explain", "--", job_id)
    assert result.exit_code in (1, 2)
    assert error_of(result)


def test_json_holds_the_job_its_blockers_and_the_sentences(site: Site) -> None:
    site.publish(busy_state())
    answer = json.loads(site.run("explain", "40729", "--json").stdout)
    assert answer["schema"] == 1 and answer["job"]["job_id"] == "40729"
    assert [job["job_id"] for job in answer["blocking_jobs"]] == ["40718_3", "40600"]
    assert answer["tier"]["to_gpu_s"] == 3600.0
    assert answer["sections"][0]["title"] == "Where it stands"


def test_hostile_texts_are_printed_and_never_obeyed(site: Site) -> None:
    texts = ("name", "user", "partition", "slurm_state", "slurm_reason", "detail", "nodes")
    more = ("start_on", "style", "preempted_by", "preempted_for", "reason")
    job = waiting("1", preemptions=1, **dict.fromkeys(texts + more, HOSTILE))
    job = replace(job, victims=(HOSTILE,), blockers=(Blocker(HOSTILE, HOSTILE, until_s=1e300),))
    event = PublishedEvent(NOW_S, HOSTILE, "1", HOSTILE, HOSTILE)
    output = explained(site, job, events=(event,))
    assert all(line.isprintable() for line in output.splitlines())
    assert "?[2J?[bold]?x" in output


def test_times_beyond_the_calendar_are_no_traceback(site: Site) -> None:
    job = waiting("1", preemptions=1, preempted_at_s=1e300, attained_gpu_s=1e300, waited_s=-1.0)
    assert "It was preempted once" in explained(site, job)


@pytest.mark.parametrize("build", [waiting, running])
def test_it_says_by_which_rule_and_number_a_job_is_placed(site: Site, build: Build) -> None:
    because = "largest tensor 74 % of vgg16 (built in), limit 50 %"
    job = build("12", placement="consolidate", placement_because=because)
    assert f"Placement: consolidated: {because}." in explained(site, job)
    assert "Placement" not in explained(site, replace(job, gpus=1))


def test_a_models_name_is_printed_inertly(site: Site) -> None:
    output = explained(site, waiting("12", placement="spread", placement_because=HOSTILE))
    assert "Placement: spread: ?[2J?[bold]?x." in output
