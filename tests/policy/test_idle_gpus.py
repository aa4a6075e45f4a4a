"""Since when a run has used none of its GPUs, by the samples of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.job_views import view
from slurm_tiresias.config import parse
from slurm_tiresias.core.features.idle_gpus import (
    AHEAD_S,
    LATE_AFTER_S,
    MOST_IN_A_ROW,
    TOLD_EVERY_S,
    GpuIdleness,
    IdleGpus,
    NotPreempted,
    idleness,
    is_flagged,
    is_to_leave,
    ranks_last,
    ranks_last_anew,
    why_not_preempted,
    why_spared,
)
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.policy import rank_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import IDLE_LEVEL
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.model import (
    Amount,
    JobAccount,
    JobState,
    NodeUse,
    RecentVictims,
    Request,
)
from slurm_tiresias.profiler.gpu_use_folder import SIGN_OF_LIFE_S
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.idle_gpus import FLAG, LEAVE, RANK_LAST, IdleGpusConfig
from tests.known import known
from tests.pictures import gpus, job

NOW_S = 10_000.0
BEGAN_S = 1_000.0
TWO_NODES = {"n1": 8, "n2": 8}


def use(
    idle_since_s: float | None, *, at_s: float = NOW_S - 5, busy: int = 0, busy_gpu_s: float = 0.0
) -> NodeUse:
    return NodeUse(at_s, busy, idle_since_s, at_s - BEGAN_S, busy_gpu_s)


def found(
    told: Mapping[str, NodeUse], gpus_on: Mapping[str, int] = TWO_NODES
) -> GpuIdleness | None:
    return idleness(told, gpus_on, BEGAN_S, NOW_S)


def test_a_run_is_idle_since_its_last_gpu_on_any_node_was_busy() -> None:
    idle = known(found({"n1": use(2_000.0), "n2": use(3_000.0)}))
    assert (idle.gpus, idle.busy, idle.idle_since_s) == (16, 0, 3_000.0)


def test_one_busy_gpu_of_sixteen_is_told_apart_from_none_and_from_all() -> None:
    one = found({"n1": use(2_000.0), "n2": use(None, busy=1)})
    every = found({"n1": use(None, busy=8), "n2": use(None, busy=8)})
    assert one is not None
    assert every is not None
    assert (one.busy, one.idle_since_s) == (1, None)
    assert (every.busy, every.idle_since_s) == (16, None)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"n1": use(2_000.0)},
        {"n1": use(2_000.0), "n3": use(2_000.0)},
        {"n1": use(2_000.0), "n2": use(2_000.0, at_s=NOW_S - LATE_AFTER_S - 1)},
        {"n1": use(2_000.0), "n2": use(2_000.0, at_s=NOW_S + AHEAD_S + 1)},
    ],
    ids=["nothing", "one of two nodes", "another node", "late", "from the future"],
)
def test_without_recent_samples_of_all_nodes_nothing_is_known(told: Mapping[str, NodeUse]) -> None:
    assert found(told) is None


def test_nodes_without_gpus_of_the_job_are_not_asked() -> None:
    idle = known(found({"n1": use(2_000.0)}, {"n1": 8, "n2": 0}))
    assert idle.idle_since_s == 2_000.0
    assert found({"n1": use(2_000.0)}, {"n1": 0}) is None


def test_a_run_has_been_idle_no_longer_than_it_has_run_by_slurms_clock() -> None:
    idle = known(found({"n1": use(0.0)}, {"n1": 8}))
    assert idle.idle_since_s == BEGAN_S


def test_the_node_and_the_controller_agree_on_the_signs_of_life() -> None:
    assert TOLD_EVERY_S == SIGN_OF_LIFE_S


def test_gpu_time_held_idle_counts_each_gpu_up_to_now() -> None:
    idle = known(found({"n1": use(None, busy=1, busy_gpu_s=8_995.0)}, {"n1": 8}))
    assert idle.held_idle_gpu_s == pytest.approx(7 * 9_000.0)


nodes = st.sampled_from(["n1", "n2", "n3"])
uses = st.builds(
    NodeUse,
    at_s=st.floats(0, 2 * NOW_S),
    busy=st.integers(0, 999),
    idle_since_s=st.none() | st.floats(0, 2 * NOW_S),
    sampled_s=st.floats(0, 1e9),
    busy_gpu_s=st.floats(0, 1e12),
)


@given(st.dictionaries(nodes, uses), st.dictionaries(nodes, st.integers(0, 8)))
def test_whatever_is_told_the_figures_stay_within_what_the_run_held(
    told: Mapping[str, NodeUse], gpus_on: Mapping[str, int]
) -> None:
    idle = found(told, gpus_on)
    if idle is None:
        return
    assert idle.gpus == sum(gpus_on.values())
    assert 0 <= idle.busy <= idle.gpus
    assert 0.0 <= idle.held_idle_gpu_s <= idle.gpus * (NOW_S - BEGAN_S)
    if idle.idle_since_s is not None:
        assert BEGAN_S <= idle.idle_since_s <= NOW_S
        assert all(told[node].idle_since_s is not None for node, gpus in gpus_on.items() if gpus)


@pytest.mark.parametrize("after_s", [0.0, 600.0])
@pytest.mark.parametrize("action", [FLAG, RANK_LAST, LEAVE])
@pytest.mark.parametrize("idle_s", [599.0, 600.0, None])
def test_only_a_run_that_was_idle_for_as_long_as_set_is_flagged_or_ranks_last(
    after_s: float, action: str, idle_s: float | None
) -> None:
    config = IdleGpusConfig(after_s=after_s, action=action)
    idle = GpuIdleness(8, 0, None if idle_s is None else NOW_S - idle_s, 0.0)
    flagged = after_s > 0 and idle_s == 600.0
    assert is_flagged(idle, config, NOW_S) is flagged
    assert ranks_last(idle, config, NOW_S) is (flagged and action != FLAG)


@pytest.mark.parametrize("name", ["2d-las", "2d-gittins"])
@pytest.mark.parametrize("attained_gpu_s", [0.0, 1e9])
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.PENDING])
def test_a_job_that_ranks_last_does_so_in_every_tier_and_keeps_its_tier(
    name: str, attained_gpu_s: float, state: JobState
) -> None:
    policy = make_policy(parse({"policy": {"name": name}}).policy)
    request = Request(Amount({"": 1}))
    job = view("1", state, request, attained_gpu_s=attained_gpu_s, ranks_last=True)
    rank, usual = rank_of(job, policy), policy.rank(job)
    assert rank.level == IDLE_LEVEL > usual.level and rank.tier == usual.tier


def test_jobs_that_rank_last_keep_the_order_of_their_tiers_among_themselves() -> None:
    policy = make_policy(parse({}).policy)
    request = Request(Amount({"": 1}))
    lower, higher = (
        replace(
            view(key, JobState.PENDING, request, attained_gpu_s=attained_gpu_s, ranks_last=True),
            attained_since_promotion_gpu_s=attained_gpu_s,
        )
        for key, attained_gpu_s in (("1", 1e9), ("2", 0.0))
    )
    assert rank_of(higher, policy) < rank_of(lower, policy)


@pytest.mark.parametrize("action", [FLAG, RANK_LAST, LEAVE])
@pytest.mark.parametrize("idle_s", [1799.0, 1800.0, None])
def test_only_a_run_idle_for_leave_after_s_is_preempted(action: str, idle_s: float | None) -> None:
    config = IdleGpusConfig(after_s=600.0, action=action, leave_after_s=1800.0)
    idle = GpuIdleness(8, 0, None if idle_s is None else NOW_S - idle_s, 0.0)
    assert is_to_leave(idle, config, NOW_S) is (action == LEAVE and idle_s == 1800.0)


def test_a_run_is_preempted_for_idle_gpus_once_and_a_job_three_times_in_a_row() -> None:
    account = JobAccount("1", 2, 0.0, 0.0, 0.0, 0)
    assert why_not_preempted(account, 2) is None
    told = replace(account, idle_signalled_run=2)
    assert why_not_preempted(told, 2) is NotPreempted.ONCE_IN_A_RUN
    assert why_not_preempted(told, 3) is None
    for times in range(MOST_IN_A_ROW + 1):
        account = replace(account, idle_requeues=times)
        often_enough = NotPreempted.OFTEN_ENOUGH if times >= MOST_IN_A_ROW else None
        assert why_not_preempted(account, 2) is often_enough
        assert ranks_last_anew(account, 0.0, IdleGpusConfig(600.0, LEAVE, 1800.0)) is (times > 0)
        assert not ranks_last_anew(account, 0.0, IdleGpusConfig(600.0, RANK_LAST))


@pytest.mark.parametrize("action", [FLAG, RANK_LAST, LEAVE])
@pytest.mark.parametrize("idle_s", [0.0, 599.0, 600.0])
def test_a_job_requeued_while_its_gpus_were_idle_ranks_last(action: str, idle_s: float) -> None:
    account, config = JobAccount("1", 2, 0.0, 0.0, 0.0, 0), IdleGpusConfig(600.0, action, 1800.0)
    assert ranks_last_anew(account, idle_s, config) is (action != FLAG and idle_s == 600.0)


@pytest.mark.parametrize(
    ("told", "has_been_busy"),
    [
        ({"n1": use(2_000.0), "n2": use(2_000.0)}, False),
        ({"n1": use(2_000.0), "n2": use(2_000.0, busy_gpu_s=0.5)}, True),
        ({"n1": use(None, busy=1), "n2": use(2_000.0)}, True),
    ],
)
def test_a_run_that_used_one_gpu_at_any_time_has_been_busy(
    told: Mapping[str, NodeUse], has_been_busy: bool
) -> None:
    assert known(found(told)).has_been_busy is has_been_busy


@pytest.mark.parametrize(
    ("idle", "why"),
    [
        (None, "its nodes have not reported its GPU use lately"),
        (GpuIdleness(8, 1, None, 0.0), "1 of its 8 GPUs is used"),
        (GpuIdleness(8, 8, None, 0.0), "8 of its 8 GPUs are used"),
        (GpuIdleness(8, 0, NOW_S - 9, 0.0), "its GPUs have been used meanwhile, or their"),
        (GpuIdleness(8, 0, NOW_S - 1900, 0.0), "it may not be preempted any more"),
    ],
)
def test_the_reason_to_spare_a_run_is_given_in_words(idle: GpuIdleness | None, why: str) -> None:
    assert why_spared(idle, IdleGpusConfig(600.0, LEAVE, 1800.0), NOW_S).startswith(why)


def test_it_is_off_by_default_and_settings_that_contradict_each_other_are_refused() -> None:
    assert Config().idle_gpus.after_s == 0
    folder = {"profiler": {"collect_dir": "/shared/collect"}}
    assert parse({**folder, "idle_gpus": {"after_s": 600, "action": "rank-last"}})
    with pytest.raises(ConfigError, match="after_s = 0 disables it"):
        parse({**folder, "idle_gpus": {"action": "rank-last"}})
    with pytest.raises(ConfigError, match=r"without profiler\.collect_dir"):
        parse({"idle_gpus": {"after_s": 600}})
    with pytest.raises(ConfigError, match="none of its choices"):
        parse({**folder, "idle_gpus": {"after_s": 600, "action": "kill"}})
    leave = {"after_s": 600, "action": "leave"}
    assert parse({**folder, "idle_gpus": {**leave, "leave_after_s": 601}})
    for too_short in ({}, {"leave_after_s": 599}, {"leave_after_s": 600}):
        with pytest.raises(ConfigError, match="needs leave_after_s above after_s = 600"):
            parse({**folder, "idle_gpus": {**leave, **too_short}})
    with pytest.raises(ConfigError, match="lets jobs stay"):
        parse({**folder, "idle_gpus": {"after_s": 600, "leave_after_s": 1800}})


def told_of(
    idle_s: float,
    requeues: int = 0,
    *,
    action: str = LEAVE,
    signalled: bool = False,
    least_s: float = NOW_S + 300 - BEGAN_S,
) -> tuple[IdleGpus, Job, JobAccount]:
    """A running job of four GPUs that has used none for so long, as the feature knows it."""
    tables = {"after_s": 600.0, "action": action, "leave_after_s": 1800.0 * (action == LEAVE)}
    config = parse(
        {
            "idle_gpus": tables,
            "profiler": {"collect_dir": "/x"},
            "preemption": {"min_run_s": least_s, "drilled_min_run_s": 0.0},
        }
    )
    on = {"n1": Amount({"": 4})}
    one = view("7", JobState.RUNNING, gpus(4), allocation=on, running_since_s=BEGAN_S)
    signalled_run = one.status.restarts if signalled else None
    account = replace(
        JobAccount("7", 2, 0.0, 0.0, 0.0, 0),
        idle_requeues=requeues,
        idle_signalled_run=signalled_run,
    )
    one.account_in_ledger = account
    feature = IdleGpus(config)
    told = {(one.status.raw_id, one.status.restarts): {"n1": use(NOW_S - idle_s)}}
    feature.hear(told, {one.status.raw_id: one}.get, NOW_S, RecentVictims())
    return feature, one, account


@pytest.mark.parametrize(
    ("idle_s", "requeues", "signalled", "said"),
    [
        (900.0, 0, False, f"If it uses none before {{{NOW_S + 900} moment}}"),
        (900.0, 0, True, "this one was signalled before"),
        (900.0, MOST_IN_A_ROW, False, "as often in a row as a job may be"),
        (1900.0, 0, False, f"If it uses none before {{{NOW_S + 300} moment}}"),
    ],
)
def test_it_says_whether_a_job_that_uses_no_gpu_is_to_leave(
    idle_s: float, requeues: int, signalled: bool, said: str
) -> None:
    feature, one, account = told_of(idle_s, requeues, signalled=signalled)
    shown = known(feature.explain(one, account, NOW_S))
    text = " ".join(shown.says)
    assert f"It has not used any of its 4 GPUs since {{{NOW_S - idle_s} moment}}" in text
    assert "preempted before all other jobs" in text
    assert said in text
    others = ("even if no other job waits", "signalled before", "as often in a row as")
    assert sum(other in text for other in others) == 1
    assert ("requeued for its idle GPUs 3 times in a row" in text) is (requeues == 3)
    assert shown.alarm == f"idle 4 GPUs since {{{NOW_S - idle_s} moment}}"


def test_the_alarm_says_that_a_job_is_being_preempted_for_its_idle_gpus() -> None:
    feature, one, account = told_of(1900.0, least_s=60.0)
    shown = known(feature.explain(one, account, NOW_S))
    assert shown.alarm == f"idle 4 GPUs since {{{NOW_S - 1900.0} moment}}, being preempted"


def test_it_says_nothing_of_a_job_that_has_not_been_idle_for_long_or_of_an_unknown_one() -> None:
    feature, one, account = told_of(300.0, action=FLAG)
    shown = known(feature.explain(one, account, NOW_S))
    assert shown.alarm == ""
    assert shown.says[0].startswith("0 of its 4 GPUs are busy now.")
    assert feature.explain(job("8", gpus(4)), account, NOW_S) is None


def test_jobs_whose_facts_change_are_ranked_anew_once() -> None:
    feature, one, _ = told_of(900.0)
    assert (one.ranks_last, one.leaves_idle) == (True, False)
    assert list(feature.tick(NOW_S)) == [one]
    assert list(feature.tick(NOW_S)) == []
