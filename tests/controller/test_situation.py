"""When a failed start may be tried again with victims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from scripts.testbed.job_views import changed
from slurm_tiresias.config import parse
from slurm_tiresias.controller.act import Actor
from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.situation import Situations
from slurm_tiresias.core.lifecycle.nomination import Expired, Nominated, VictimLeft
from slurm_tiresias.model import Amount, JobStatus, Node
from slurm_tiresias.slurm.protocol import Observation, Slurm
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import pending, see

GPU = frozenset({"gpu"})
NODES = (Node("n1", Amount({"": 4}, 16), GPU), Node("n2", Amount({"": 4}, 16), frozenset({"cpu"})))
JOB = pending("8")


def of(job: JobStatus = JOB, nodes: Sequence[Node] = NODES) -> str:
    return Situations(nodes, {job.key: job}).of(job.key)


@pytest.mark.parametrize(
    "asks", [{"qos": "other"}, {"time_limit_s": 60.0}, {"licenses": "solver:1"}]
)
def test_a_changed_request_is_a_new_situation(asks: dict[str, object]) -> None:
    assert of(changed(JOB, **asks)) != of()


@pytest.mark.parametrize(
    "is_now", [{"reason": "Resources"}, {"priority": 7}, {"restarts": 1}, {"submit_s": 5000.0}]
)
def test_changes_by_slurm_itself_do_not_change_the_situation(is_now: dict[str, object]) -> None:
    assert of(changed(JOB, **is_now)) == of()


def test_only_the_nodes_of_its_partitions_count() -> None:
    n1, n2 = NODES
    assert of(nodes=(replace(n1, available=False), n2)) != of()
    assert of(nodes=(n1, replace(n2, available=False))) == of()


def test_a_node_list_of_the_controller_does_not_change_the_situation(ledger: Ledger) -> None:
    job_store = JobStore(ledger, parse({}), accounting=False)
    see(job_store, 1000, JOB)
    account = replace(job_store.accounts.all["8"], written_nodes="n1")
    ours = changed(JOB, required_node_list="n1")
    assert Situations(NODES, {"8": ours}, {"8": account}).of("8") == of()
    assert of(ours) != of()


def test_after_a_preemption_in_vain_the_same_situation_has_no_victim(ledger: Ledger) -> None:
    job_store = JobStore(ledger, parse({}), accounting=False)
    actor = Actor(UnderWay(cast(Slurm, None), job_store, parse({}), requeue_delay_s=120.0))
    see(job_store, 1000, JOB)
    job_store.lifecycles.nomination_event("8", Nominated(1000.0, "{}", needs_victims=True))
    job_store.lifecycles.nomination_event("8", VictimLeft())
    job_store.lifecycles.nomination_event("8", Expired(1060.0, of(), "Resources"))
    job_store.commit()
    anew = JobStore(ledger, parse({}), accounting=False)
    after = Actor(UnderWay(cast(Slurm, None), anew, parse({}), requeue_delay_s=0))
    later_s = 1060.0 + 30 * 86400.0
    for one in (actor, after):
        assert one.review(Observation(later_s, (JOB,), NODES, ())).in_vain == {"8"}
        asks = changed(JOB, qos="other")
        assert one.review(Observation(later_s, (asks,), NODES, ())).backing_off == set()
