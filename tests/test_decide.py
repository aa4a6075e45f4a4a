"""Decisions as drawings: the cluster before, the waiting jobs, the cluster after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scripts.testbed.job_views import changed, view
from slurm_tiresias.core.engine import Engine
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job, KeptBySlurm, Snapshot
from slurm_tiresias.model import (
    Action,
    Amount,
    JobState,
    PlacementStyle,
    Protection,
    Reason,
    Request,
)
from slurm_tiresias.settings import Config
from tests.pictures import NOW_S, PARTITION, cluster, configured, expect, gpus, job, plan_for


def wide(job_id: str, count: int, **more: Any) -> Job:
    """A job that requests a number of GPUs and may span nodes (``--gpus=N``)."""
    return job(job_id, gpus(count, spanning=True), **more)


def test_a_short_job_takes_gpus_from_a_job_in_a_lower_tier() -> None:
    plan = expect(
        """
        n1  1 1 1 1 -> 3 3 3 3
        n2  2 2 2 2
        """,
        [job("1", gpus(4), tier=1), job("2", gpus(4)), job("3", gpus(4))],
    )
    assert plan.decisions["3"].victims == ("1",)
    assert plan.decisions["1"].preempted_for == "3"


def test_idle_gpus_are_used_before_any_job_is_preempted() -> None:
    plan = expect(
        """
        n1  1 1 1 1
        n2  . . . . -> 3 3 . .
        """,
        [job("1", gpus(4), tier=2), job("3", gpus(2))],
    )
    assert plan.preemptions == ()


def test_no_job_is_preempted_within_its_tier() -> None:
    plan = expect(
        "n1  2 2 2 2", [job("2", gpus(4), submitted_s=5), job("1", gpus(1), submitted_s=1)]
    )
    assert plan.decisions["1"].reason is Reason.NO_ROOM
    assert plan.decisions["1"].blockers == (("2", Protection.NEAR_TIER),)


def test_a_demoted_job_keeps_running_while_no_higher_job_needs_its_gpus() -> None:
    expect("n1  1 1 . . -> 1 1 2 2", [job("1", gpus(2), tier=1), job("2", gpus(2))])


def test_no_job_is_preempted_for_a_job_that_still_would_not_fit() -> None:
    plan = expect(
        """
        n1  1 1 2 2
        n2  3 3 3 3
        """,
        [job("1", gpus(2), tier=1), job("2", gpus(2)), job("3", gpus(4)), job("4", gpus(4))],
    )
    assert plan.decisions["4"].reason is Reason.NO_ROOM


def test_a_wide_job_that_does_not_fit_does_not_stop_a_narrow_one_behind_it() -> None:
    plan = expect(
        """
        n1  1 1 1 . -> 1 1 1 4
        n2  2 2 2 2
        """,
        [job("1", gpus(3)), job("2", gpus(4)), wide("3", 4), job("4", gpus(1))],
    )
    assert plan.decisions["3"].reason is Reason.NO_ROOM


def test_jobs_of_the_lowest_tier_are_preempted_first() -> None:
    expect(
        """
        n1  1 1
        n2  2 2 -> 3 3
        """,
        [job("1", gpus(2), tier=1), job("2", gpus(2), tier=2), job("3", gpus(2))],
    )


def test_within_a_tier_the_lowest_ranked_job_is_preempted() -> None:
    expect(
        """
        n1  1 1 -> 3 3
        n2  2 2
        """,
        [
            job("1", gpus(2), tier=1, first_started_s=20),
            job("2", gpus(2), tier=1, first_started_s=10),
            job("3", gpus(2)),
        ],
    )


def test_a_narrow_victim_is_preferred_over_a_wide_one() -> None:
    expect(
        """
        n1  1 1 1 1
        n2  1 1 2 4 -> 1 1 3 4
        """,
        [
            wide("1", 6, tier=1, first_started_s=90),
            job("2", gpus(1), tier=1, first_started_s=10),
            job("4", gpus(1)),
            job("3", gpus(1)),
        ],
    )


def test_only_needed_victims_are_preempted() -> None:
    plan = expect(
        """
        n1  1 2 3 4 -> 1 2 6 6
        n2  5 5 5 5
        """,
        [*(job(i, gpus(1), tier=1) for i in "1234"), job("5", gpus(4)), job("6", gpus(2))],
    )
    assert plan.decisions["6"].victims == ("3", "4")


def test_idle_gpus_beside_a_victim_are_used_with_it() -> None:
    expect(
        """
        n1  1 1 2 . -> 1 1 4 4
        n2  3 3 3 3
        """,
        [job("1", gpus(2)), job("2", gpus(1), tier=1), job("3", gpus(4)), job("4", gpus(2))],
    )


def test_surplus_gpus_of_a_preemption_go_to_the_next_job_in_order() -> None:
    plan = expect(
        "n1  1 1 1 1 -> 2 2 3 3",
        [job("1", gpus(4), tier=1), job("2", gpus(2)), job("3", gpus(2), tier=1, submitted_s=9)],
    )
    assert plan.decisions["3"].reason is Reason.STARTS


def test_a_job_that_only_requests_a_number_of_gpus_may_span_nodes() -> None:
    expect(
        """
        n1  1 1 . . -> 1 1 3 3
        n2  2 2 . . -> 2 2 3 3
        """,
        [job("1", gpus(2)), job("2", gpus(2)), wide("3", 4)],
    )


@pytest.mark.parametrize(("count", "spans"), [(4, False), (6, True)])
def test_a_possible_one_task_job_spans_nodes_only_if_it_must(count: int, spans: bool) -> None:
    before = cluster(
        """
        n1  1 . . .
        n2  2 . . .
        """,
        [job("1", gpus(1)), job("2", gpus(1)), wide("3", count)],
    )
    one_task = replace(before.jobs[2].request, may_be_one_task=True)
    jobs = (*before.jobs[:2], changed(before.jobs[2], request=one_task))
    plan = plan_for(replace(before, jobs=jobs))
    assert (plan.decisions["3"].action is Action.START) is spans


def test_a_fixed_shape_is_kept() -> None:
    plan = expect(
        """
        n1  1 1 . . -> 1 1 3 3
        n2  2 2 . . -> 2 2 3 3
        n3  . . . . -> 3 3 . .
        """,
        [job("1", gpus(2)), job("2", gpus(2)), job("3", gpus(2, nodes=3)), job("4", gpus(4))],
    )
    assert plan.decisions["4"].reason is Reason.NO_ROOM


@pytest.mark.parametrize(
    ("style", "picture"),
    [
        ("consolidate", "n1  1 1 . .\nn2  2 2 . .\nn3  . . . . -> 3 3 3 3"),
        ("spread", "n1  1 1 . . -> 1 1 3 3\nn2  2 2 . . -> 2 2 3 3\nn3  . . . ."),
    ],
)
def test_skewed_models_get_whole_nodes_and_others_fragments(style: str, picture: str) -> None:
    jobs = [job("1", gpus(2)), job("2", gpus(2)), wide("3", 4, style=PlacementStyle(style))]
    expect(picture, jobs)


def test_fragments_are_used_only_if_they_are_filled() -> None:
    expect(
        """
        n1  1 1 1 .
        n2  2 . . . -> 2 3 3 .
        n3  . . . .
        """,
        [job("1", gpus(3)), job("2", gpus(1)), wide("3", 2, style=PlacementStyle.SPREAD)],
    )


@pytest.mark.parametrize(("skew", "style"), [(0.743, "consolidate"), (0.092, "spread")])
def test_the_skew_of_the_model_decides_the_placement(skew: float, style: str) -> None:
    before = cluster("n1  . . . .", [wide("1", 4, skew=skew)])
    assert plan_for(before).decisions["1"].style is PlacementStyle(style)


def test_a_small_job_is_placed_where_it_leaves_the_fewest_idle_gpus() -> None:
    expect(
        """
        n1  . . . .
        n2  1 1 1 . -> 1 1 1 2
        """,
        [job("1", gpus(3)), job("2", gpus(1))],
    )


@pytest.mark.parametrize(
    ("protection", "config", "guard"),
    [
        (
            {"running_since_s": NOW_S - 30},
            configured(preemption={"min_run_s": 60}),
            Protection.MIN_RUN,
        ),
        (
            {"running_since_s": NOW_S - 200, "preemptions": 2},
            configured(preemption={"min_run_s": 60}),
            Protection.MIN_RUN,
        ),
        ({"in_slurm": KeptBySlurm(held=True)}, configured(), Protection.HELD),
    ],
)
def test_a_protected_job_keeps_its_gpus_and_blocks_the_waiting_one(
    protection: dict[str, Any], config: Config, guard: Protection
) -> None:
    plan = expect("n1  1 1", [job("1", gpus(2), tier=1, **protection), job("2", gpus(2))], config)
    assert plan.decisions["2"].reason is Reason.PROTECTED
    assert plan.decisions["2"].blockers == (("1", guard),)


def test_jobs_that_are_not_managed_hold_their_gpus_and_are_left_alone() -> None:
    plan = expect("n1  # # . . -> # # 2 2", [job("1", gpus(4)), job("2", gpus(2))])
    assert plan.decisions["999999"].action is Action.LEAVE
    assert plan.decisions["1"].blockers[-1] == ("999999", Protection.UNMANAGED)


def test_only_jobs_that_hold_what_is_short_are_named_as_blockers() -> None:
    before = cluster(
        """
        n1  1 1 1 1
        n2  2 2 2 2
        """,
        [job("1", gpus(4)), job("2", gpus(4)), job("3", gpus(4))],
    )
    on_one_cpu = view(
        *("4", JobState.RUNNING, Request(Amount(cpus=1))),
        submitted_s=0.0,
        managed=False,
        allocation={"n2": Amount(cpus=1)},
    )
    snapshot = replace(before, jobs=(*before.jobs, on_one_cpu))
    assert plan_for(snapshot).decisions["3"].blockers == (
        ("1", Protection.NEAR_TIER),
        ("2", Protection.NEAR_TIER),
    )
    all_cpus = {"n1": Amount(cpus=4), "n2": Amount(cpus=4)}
    on_all_cpus = changed(on_one_cpu, allocation=all_cpus)
    nobody_else = (before.jobs[2], on_all_cpus)
    wants_cpus = replace(before.jobs[2].request, chunk=Amount({"": 4}, cpus=5))
    snapshot = replace(before, jobs=(changed(nobody_else[0], request=wants_cpus), on_all_cpus))
    assert plan_for(snapshot).decisions["3"].blockers == (("4", Protection.UNMANAGED),)


def test_resources_of_preemptible_jobs_do_not_count_as_short() -> None:
    before = cluster(
        "n1  1 2 2 2", [job("1", gpus(1), tier=1), job("2", gpus(3)), job("3", gpus(4))]
    )
    hungry = changed(before.jobs[0], allocation={"n1": Amount({"": 1}, cpus=7)})
    frugal = changed(before.jobs[1], allocation={"n1": Amount({"": 3})})
    on_one_cpu = view(
        *("4", JobState.RUNNING, Request(Amount(cpus=1))),
        submitted_s=0.0,
        managed=False,
        allocation={"n1": Amount(cpus=1)},
    )
    snapshot = replace(before, jobs=(hungry, frugal, before.jobs[2], on_one_cpu))
    assert plan_for(snapshot).decisions["3"].blockers == (("2", Protection.NEAR_TIER),)


def test_a_preemptible_job_is_not_named_as_a_blocker() -> None:
    plan = expect(
        "n1  1 1 2 2",
        [
            job("1", gpus(2), tier=1),
            job("2", gpus(2), tier=1, running_since_s=NOW_S - 30),
            job("3", gpus(4)),
        ],
        configured(preemption={"min_run_s": 60}),
    )
    assert plan.decisions["3"].reason is Reason.PROTECTED
    assert plan.decisions["3"].blockers == (("2", Protection.MIN_RUN),)


def test_cpus_and_memory_count_too() -> None:
    before = cluster("n1  1 . . .", [job("1", gpus(1)), job("2", gpus(1)), job("3", gpus(1))])
    hungry = replace(before.jobs[1].request, chunk=Amount({"": 1}, cpus=8))
    fat = replace(before.jobs[2].request, chunk=Amount({"": 1}, cpus=1, memory_mb=2000))
    jobs = (before.jobs[0], changed(before.jobs[1], request=hungry))
    assert plan_for(replace(before, jobs=jobs)).decisions["2"].reason is Reason.NO_ROOM
    jobs = (before.jobs[0], changed(before.jobs[2], request=fat))
    assert plan_for(replace(before, jobs=jobs)).decisions["3"].reason is Reason.NEVER_FITS


def test_gpus_of_a_type_serve_requests_for_that_type_or_for_any() -> None:
    total = Amount({"a100": 2, "v100": 2}, cpus=8, memory_mb=1000)
    before = cluster(
        "n1  . . . .",
        [
            job("1", gpus(2, gpu_type="v100")),
            job("2", gpus(1, gpu_type="v100")),
            job("3", gpus(2)),
            job("4", gpus(1, gpu_type="h100")),
        ],
        n1={"total": total},
    )
    plan = plan_for(before)
    assert plan.decisions["1"].start_on["n1"].gpus == {"v100": 2}
    assert plan.decisions["2"].reason is Reason.NO_ROOM
    assert plan.decisions["3"].start_on["n1"].gpus == {"a100": 2}
    assert plan.decisions["4"].reason is Reason.NEVER_FITS


def test_an_exclusive_job_gets_empty_nodes_only_and_all_of_them() -> None:
    expect(
        """
        n1  1 . . . -> 1 4 4 .
        n2  2 2 . . -> 3 3 3 3
        """,
        [
            job("1", gpus(1)),
            job("2", gpus(2), tier=1),
            job("3", gpus(1, exclusive=True)),
            job("4", gpus(2)),
        ],
    )


@pytest.mark.parametrize(
    ("constraint", "where"),
    [
        ({"features": "fast&new"}, "n2"),
        ({"features": "slow|new"}, "n2"),
        ({"required_nodes": frozenset({"n3"})}, "n3"),
        ({"excluded_nodes": frozenset({"n1", "n2"})}, "n3"),
        ({"partitions": ("other",)}, "n4"),
    ],
)
def test_a_job_is_placed_only_on_eligible_nodes(constraint: dict[str, Any], where: str) -> None:
    before = cluster(
        """
        n1  . .
        n2  . .
        n3  . .
        n4  . .
        """,
        [job("1", gpus(2, **constraint))],
        n1={"features": frozenset({"fast"})},
        n2={"features": frozenset({"fast", "new"})},
        n4={"partitions": frozenset({"other"})},
    )
    assert list(plan_for(before).decisions["1"].start_on) == [where]


def test_a_job_that_names_two_partitions_is_not_placed_across_both() -> None:
    other = {"partitions": frozenset({"other"})}
    before = cluster(
        """
        n1  . .
        n2  . .
        n3  . .
        """,
        [job("1", gpus(2, nodes=2, partitions=("gpu", "other")))],
        n2=other,
        n3=other,
    )
    assert plan_for(before).decisions["1"].start_on.keys() == {"n2", "n3"}


def test_all_required_nodes_are_used() -> None:
    request = gpus(2, nodes=2, required_nodes=frozenset({"n2", "n3"}))
    expect(
        """
        n1  . .
        n2  1 1 -> 2 2
        n3  . . -> 2 2
        """,
        [job("1", gpus(2), tier=1), job("2", request)],
    )


def test_a_held_job_and_a_job_that_slurm_delays_are_not_started() -> None:
    plan = expect(
        "n1  . . . . -> 3 . . .",
        [
            job("1", gpus(1), held=True),
            job("2", gpus(1), not_eligible="Dependency"),
            job("3", gpus(1)),
        ],
    )
    assert plan.decisions["1"].reason is Reason.HELD
    assert plan.decisions["2"].reason is Reason.SLURM_WAITS


def test_a_job_is_preempted_for_its_idle_gpus_if_no_job_waits() -> None:
    idle = job("1", gpus(4), ranks_last=True, leaves_idle=True)
    alone = plan_for(cluster("n1  1 1 1 1", [idle]))
    assert alone.decisions["1"].action is Action.PREEMPT
    assert alone.decisions["1"].reason is Reason.IDLE_GPUS
    assert alone.decisions["1"].preempted_for == ""
    two = plan_for(cluster("n1  1 1 1 1", [idle, job("2", gpus(4), ranks_last=True)]))
    assert two.decisions["1"].reason is Reason.IDLE_GPUS
    assert two.decisions["2"].action is Action.WAIT


def test_a_preemptor_takes_precedence_over_idle_gpus_as_the_reason() -> None:
    idle = job("1", gpus(4), ranks_last=True, leaves_idle=True)
    plan = plan_for(cluster("n1  1 1 1 1", [idle, job("2", gpus(4))]))
    assert plan.decisions["1"].reason is Reason.PREEMPTED
    assert plan.decisions["1"].preempted_for == "2"


def test_a_waiting_job_that_ranks_last_starts_last_and_preempts_none() -> None:
    last = job("1", gpus(4), submitted_s=0, ranks_last=True)
    after = job("2", gpus(4), tier=2, submitted_s=100)
    expect("n1  . . . . -> 2 2 2 2", [last, after])
    plan = plan_for(cluster("n1  2 2 2 2", [last, after]))
    assert plan.decisions["1"].action is Action.WAIT
    assert plan.preemptions == ()


def test_a_nomination_keeps_its_gpus_while_its_victim_is_leaving() -> None:
    victim = job("1", gpus(4), tier=1, preemptor="2")
    preemptor = job("2", gpus(4), nominated_to={"n1": Amount({"": 4}, cpus=1)})
    before = cluster("n1  1 1 1 1", [victim, preemptor, job("3", gpus(4), submitted_s=0)])
    plan = plan_for(before)
    assert plan.decisions["2"].reason is Reason.NOMINATED
    assert plan.decisions["1"].reason is Reason.VACATING
    assert plan.decisions["3"].action is Action.WAIT
    assert plan.preemptions == ()


def test_a_nomination_on_a_node_that_went_down_is_decided_anew() -> None:
    nodes = {"n1!": Amount({"": 2}, cpus=1)}
    expect(
        """
        n1!  . .
        n2  . . -> 2 2
        """,
        [job("2", gpus(2), nominated_to=nodes)],
    )


def test_a_backed_off_job_preempts_no_job() -> None:
    plan = expect("n1  1 1", [job("1", gpus(2), tier=1), job("2", gpus(2), backs_off=True)])
    assert plan.decisions["2"].reason is Reason.BACKS_OFF


def test_a_job_whose_user_is_over_budget_starts_on_idle_gpus_and_preempts_none() -> None:
    hunter = job("2", gpus(2), over_budget=True)
    plan = expect("n1  1 1", [job("1", gpus(2), tier=1), hunter])
    assert plan.decisions["2"].reason is Reason.OVER_BUDGET
    expect(
        """
        n1  1 1
        n2  . . -> 2 2
        """,
        [job("1", gpus(2), tier=1), hunter],
    )


def test_of_two_equal_requests_only_the_job_within_its_budget_preempts() -> None:
    hunter = job("2", gpus(2), over_budget=True)
    expect("n1  1 1 -> 3 3", [job("1", gpus(2), tier=1), hunter, job("3", gpus(2))])


def test_a_job_that_waited_long_enough_returns_to_the_top_tier() -> None:
    config = configured(policy={"promote_knob": 2})
    starved = job("2", gpus(2), tier=2, queued_s=NOW_S - 3600, executed_since_promotion_s=50)
    plan = expect("n1  1 1 -> 2 2", [job("1", gpus(2), tier=1), starved], config)
    assert plan.promotions == ("2",)
    assert plan.decisions["2"].tier == 0


def test_a_promotion_that_is_not_carried_out_counts_from_when_it_was_due() -> None:
    """Otherwise shadow mode would rank the job by when it last looked at it."""
    config = configured(policy={"promote_knob": 2, "order": "running-first"})
    starved = job("2", gpus(2), tier=2, queued_s=NOW_S - 3610, executed_since_promotion_s=50)
    newer = job("1", gpus(2), queued_s=NOW_S - 5)
    assert list(plan_for(cluster("n1  . .", [newer, starved]), config).decisions) == ["2", "1"]


def test_a_promotion_is_told_once_also_if_the_job_changes_before_the_next_plan() -> None:
    config = configured(policy={"promote_knob": 2})
    starved = job("2", gpus(2), tier=2, queued_s=NOW_S - 3600, executed_since_promotion_s=50)
    engine = Engine(make_policy(config.policy), config, cluster("n1  . .", []).nodes)
    engine.promotes = True
    for _ in ("promoted", "changed"):
        engine.update(starved, NOW_S)
    assert engine.plan(NOW_S).promotions == ("2",)
    assert engine.plan(NOW_S).promotions == ()


def test_nodes_with_running_epilogs_are_used_last() -> None:
    gone = view("1", JobState.COMPLETING, gpus(1), allocation={"n1": Amount({"": 1}, cpus=1)})
    before = cluster("n1  . .\nn2  . .", [job("2", gpus(2))])
    before = replace(before, jobs=(*before.jobs, gone))
    assert list(plan_for(before).decisions["2"].start_on) == ["n2"]


def test_nodes_that_slurm_must_boot_are_used_last_and_before_any_job_is_preempted() -> None:
    expect(
        """
        n1  . . -> 3 3
        n2  . . -> 2 2
        n3  1 1
        """,
        [job("1", gpus(2), tier=1), job("2", gpus(2)), job("3", gpus(2))],
        n1={"powered_down": True},
    )


def test_the_rest_of_a_node_that_boots_is_used_before_any_job_is_preempted() -> None:
    expect(
        """
        n1  1 . -> 1 3
        n2  2 2
        """,
        [job("1", gpus(1)), job("2", gpus(2), tier=1), job("3", gpus(1))],
        n1={"powered_down": True},
    )


def test_a_node_that_did_not_boot_is_no_room_and_jobs_are_preempted() -> None:
    expect(
        """
        n1!  . .
        n2  2 2 -> 3 3
        """,
        [job("2", gpus(2), tier=1), job("3", gpus(2))],
        n1={"powered_down": True},
    )


def test_a_job_wider_than_the_cluster_is_reported_as_never_fitting() -> None:
    plan = expect("n1  . .", [wide("1", 3)])
    assert plan.decisions["1"].reason is Reason.NEVER_FITS


def test_an_opaque_request_is_never_reported_as_never_fitting() -> None:
    """Its user is told to cancel a job that never fits."""
    plan = plan_for(cluster("n1  . .", [job("1", gpus(3, opaque="--gpus of several types"))]))
    assert plan.decisions["1"].reason is Reason.NO_ROOM
    assert "--gpus of several types, which only Slurm" in plan.decisions["1"].detail


def test_no_job_is_preempted_for_a_request_whose_gpus_only_slurm_can_count() -> None:
    """It starts on idle GPUs all the same."""
    by_socket = gpus(2, opaque="--gpus-per-socket", gpus_vary=True)
    jobs = [job("1", gpus(2), tier=1), job("2", by_socket), job("3", by_socket)]
    plan = expect(
        """
        n1  1 1
        n2  . . -> 2 2
        """,
        jobs,
    )
    assert plan.decisions["3"].reason is Reason.NO_ROOM
    assert "how many GPUs --gpus-per-socket gives it" in plan.decisions["3"].detail


@pytest.mark.parametrize(
    ("nodes", "reason"), [("n1  1 1\nn2  . .", Reason.NO_ROOM), ("n1  1 1", Reason.NEVER_FITS)]
)
def test_a_job_divided_by_slurm_never_fits_only_by_its_gpus(nodes: str, reason: Reason) -> None:
    """A GPU with its share of the CPUs fits on no node, but CPUs of several nodes may suffice."""
    tasks = job("2", Request(Amount({"": 1}, 1000), 3, partitions=(PARTITION,), cpus_vary=True))
    plan = expect(nodes, [job("1", gpus(2), tier=1), tasks])
    assert plan.decisions["2"].reason is reason


def test_a_cluster_with_every_node_down_starts_nothing_and_says_why() -> None:
    plan = expect("n1!  . .", [job("1", gpus(1))])
    assert plan.decisions["1"].reason is Reason.NO_NODES


def test_a_partition_without_nodes_is_explained() -> None:
    plan = plan_for(cluster("n1  . .", [job("1", gpus(1, partitions=("empty",)))]))
    assert plan.decisions["1"].reason is Reason.NEVER_FITS
    assert "empty" in plan.decisions["1"].detail


def test_an_empty_cluster_has_an_empty_plan() -> None:
    assert plan_for(Snapshot(NOW_S, (), ())).decisions == {}


def test_an_overallocated_node_is_freed_only_as_far_as_needed() -> None:
    """Three of four CPUs are taken: while two jobs hold one each, no other job fits on the node."""
    expect(
        "n1  1 2 . . -> 1 3 3 3",
        [
            job("1", gpus(1), tier=1),
            job("2", gpus(1), tier=1),
            job("3", Request(Amount({"": 3}), partitions=(PARTITION,))),
        ],
        n1={"total": Amount({"": 4}, cpus=1, memory_mb=1000)},
    )


def test_a_lack_of_cpus_counts_even_if_placement_is_by_gpu_count() -> None:
    plan = expect(
        "n1  1 2 3 4 -> 1 5",
        [job(n, gpus(1), tier=1) for n in "1234"]
        + [job("5", Request(Amount({"": 1}), partitions=(PARTITION,)))],
        n1={"total": Amount({"": 4}, cpus=1, memory_mb=1000)},
    )
    assert plan.decisions["5"].victims == ("2", "3", "4")


RESERVED = frozenset({"n1", "n2"})
"""Before jobs with reports could end, their GPUs are promised to another job."""


def test_no_job_is_preempted_on_a_node_that_is_reserved_before_the_preemptor_could_end() -> None:
    expect(
        """
        n1  1 1 1 1
        n2  . . . . -> 5 5 5 5
        n3  3 3 3 3 -> 4 4 4 4
        """,
        [
            job("1", gpus(4), tier=2),
            job("3", gpus(4), tier=1),
            job("4", gpus(4, reserved_nodes=RESERVED)),
            job("5", gpus(4)),
        ],
    )


def test_a_job_that_fits_only_reserved_nodes_waits_for_the_reservation() -> None:
    before = cluster("n1  . . . .\nn2  1 1 1 1", [job("1", gpus(4), tier=2)])
    waits = [job("4", gpus(4, reserved_nodes=RESERVED)), job("5", gpus(5, reserved_nodes=RESERVED))]
    plan = plan_for(replace(before, jobs=before.jobs + tuple(waits)))
    assert plan.decisions["4"].reason is Reason.RESERVED
    assert plan.decisions["5"].reason is Reason.NEVER_FITS


def test_a_boosted_job_goes_before_all_others_and_may_preempt_the_first_tier() -> None:
    runs, waits, starved = job("1", gpus(4)), job("2", gpus(4)), job("3", gpus(4), tier=2)
    expect("n1  1 1 1 1", [runs, waits, starved])
    plan = expect("n1  1 1 1 1 -> 3 3 3 3", [runs, waits, changed(starved, boosted=True)])
    assert plan.decisions["3"].tier == 0
