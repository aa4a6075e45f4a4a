"""Which nodes are suspected, by the runs that ended on them."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.features.bad_nodes import BadNodes
from slurm_tiresias.core.features.failed_runs import EARLY_S, LOOKS_BACK_S
from slurm_tiresias.model import Amount, JobAccount, Node, RunRecord

LONG_S = 2 * EARLY_S


class Site:
    """Some nodes, and the runs that end on them one second after the other."""

    def __init__(self, nodes: int = 4) -> None:
        self.feature = BadNodes()
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.feature.follow_nodes([Node(name, Amount({"": 4})) for name in self.names])
        self._ids = count(1)
        self.now_s = 0.0

    def run(
        self,
        user: str,
        nodes: str,
        outcome: str = "FAILED",
        ran_s: float = 5.0,
        program: str = "train",
        step_s: float | None = None,
        hung_s: float = 0.0,
    ) -> None:
        key = str(next(self._ids))
        self.now_s += 1.0
        account = JobAccount(key, 0, 0.0, 0.0, 0.0, 0, user=user, name=program)
        run = RunRecord(
            *(key, self.now_s - ran_s, self.now_s, ran_s, 4, True),
            nodes=nodes,
            outcome=outcome,
            step_s=step_s,
            hung_s=hung_s,
        )
        self.feature.run_ended(account, run)

    @property
    def suspects(self) -> set[str]:
        list(self.feature.tick(self.now_s))
        return set(self.feature.last_resort)


@pytest.fixture
def site() -> Site:
    return Site()


def test_early_failures_of_two_users_make_a_node_suspect(site: Site) -> None:
    site.run("ann", "n1")
    assert site.suspects == set()
    assert site.feature.standings["n1"].evidence == "1 early failure of 1 user"
    site.run("ben", "n1")
    assert site.suspects == {"n1"}


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n1,n2"]), st.sampled_from("abc"))))
def test_one_users_failures_never_make_a_node_suspect(failures: list[tuple[str, str]]) -> None:
    site = Site()
    for nodes, program in failures:
        site.run("ann", nodes, program=program)
    assert site.suspects == set()


def test_hung_runs_of_two_users_make_a_node_suspect(site: Site) -> None:
    site.run("ann", "n1,n2", "", LONG_S, hung_s=900.0)
    site.run("ben", "n1", "", LONG_S, hung_s=900.0)
    site.run("cy", "n1,n3", "", LONG_S, hung_s=900.0)
    assert site.suspects == {"n1"}
    assert site.feature.standings["n1"].evidence == "3 hung runs of 3 users"


def test_a_program_that_fails_on_other_nodes_too_incriminates_none(site: Site) -> None:
    for user in ("ann", "ben"):
        site.run(user, "n1")
        site.run(user, "n2")
    assert site.suspects == set()


def test_failures_of_wide_jobs_incriminate_the_node_that_they_share(site: Site) -> None:
    for user, nodes in (("ann", "n1,n2"), ("ben", "n1,n3"), ("cy", "n1,n4"), ("dan", "n1,n2")):
        site.run(user, nodes)
    assert site.suspects == {"n1"}


def test_failures_that_slurm_sees_need_no_user(site: Site) -> None:
    site.run("ann", "n1", "NODE_FAIL")
    site.run("ann", "n1", "NODE_FAIL")  # the same failure of the node
    assert site.suspects == set()
    site.now_s += 3600.0
    site.run("ann", "n1", "NODE_FAIL")
    assert site.suspects == {"n1"}


def test_a_failure_in_a_wide_job_is_divided_among_its_nodes(site: Site) -> None:
    for nodes in ("n1,n2", "n1,n3", "n1,n4"):
        site.run("ann", nodes, "NODE_FAIL")
        site.now_s += 3600.0
        assert site.suspects == set()
    site.run("ann", "n1,n2", "NODE_FAIL")
    assert site.suspects == {"n1"}


@pytest.mark.parametrize("seed", range(5))
def test_no_healthy_node_stands_out_however_many_programs_fail(seed: int) -> None:
    site, chance = Site(nodes=100), random.Random(seed)
    for _ in range(1000):
        outcome, ran_s = ("FAILED", 5.0) if chance.random() < 0.2 else ("COMPLETED", LONG_S)
        user, program = f"u{chance.randrange(60)}", f"p{chance.randrange(20)}"
        site.run(user, chance.choice(site.names), outcome, ran_s, program)
    assert site.suspects, "there are some by chance"
    assert not any(one.stands_out for one in site.feature.standings.values())
    for number in range(20):
        site.run(f"u{number}", "n7", program="new")
    assert "n7" in site.suspects
    assert [name for name in site.names if site.feature.standings[name].stands_out] == ["n7"]


def test_slower_steps_than_elsewhere_of_two_users_make_a_node_suspect(site: Site) -> None:
    for user in ("ann", "ben"):
        site.run(user, "n2", "COMPLETED", LONG_S, step_s=1.0)
        site.run(user, "n1", "COMPLETED", LONG_S, step_s=1.5)
    assert site.suspects == {"n1"}
    assert site.feature.standings["n1"].speed == pytest.approx(2 / 3)


def test_longer_runs_since_speak_for_a_node(site: Site) -> None:
    site.run("ann", "n1")
    site.run("cy", "n1", "COMPLETED", LONG_S)
    site.run("ben", "n1")
    assert site.suspects == set()
    site.run("dan", "n1")
    assert site.suspects == {"n1"}


@pytest.mark.parametrize("outcome", ["COMPLETED", "CANCELLED", "TIMEOUT", ""])
def test_short_runs_that_did_not_fail_say_nothing(site: Site, outcome: str) -> None:
    for user in ("ann", "ben", "cy"):
        site.run(user, "n1", outcome)
    assert site.suspects == set()


def test_suspicion_ends_when_it_is_cleared_and_after_a_day(site: Site) -> None:
    for node in ("n1", "n2"):
        site.run("ann", node, program=node)
        site.run("ben", node, program=node)
    assert site.suspects == {"n1", "n2"}
    site.feature.clear("n1", site.now_s)
    assert site.suspects == {"n2"}
    site.now_s += LOOKS_BACK_S
    assert site.suspects == set()
