"""How real Slurm interprets ``--constraint``, compared with this program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from scripts.testbed.real_cluster import RealCluster
from slurm_tiresias.core.placement.features import matches, readable

pytestmark = pytest.mark.slurm

NODES = {"n1": ("a", "b", "c"), "n2": ("a", "d")}

ALIKE = (
    *("a", "b", "a&b", "b|d", "a,b", "b&", "a|", "b,", "(b)", "(b&c)"),
    *("a|b&d", "b|a&d", "d&b|a", "(a|c)&d", "d&(a|c)", "(a&b)|(c&d)", "(d&b)|a", "c|(d&b)"),
    *("c|d&b|a&d", "(b|d)&c", "d|(b&c)", "b&(a&c)|d"),
)
WORDS_BEHIND_GROUPS = ("(b)d", "(b&c)zz", "(b)zz|d")
"""Words that Slurm 22.05 ignores; later releases start such a job nowhere."""
ACCEPTED = (
    *("a*2", "[a|d]", "[a]", "[a]&b", "[a]b", "a&[b|d]", "([a|d])", "([a|d)]", "[(a)]"),
    *("[a*1&d*1]", "a*1&d*1", "b&d*1", "a*2*3", "a*2x", "(b|d)*2", "[(a&b)|(c&d)]", "[a|d]&"),
)
"""Expressions about the whole job: more nodes may match than those on which Slurm would start
it."""

REFUSED = (
    *("&a", "|", "a&&b", "a|&b", "(a&)", "[a|]", "(a", "a)", "a]", "[a", "(", "a(b", "a[b]"),
    *("(a)(b)", "()", "[]", "a&()", "*2", "a&*2", "a&("),
)


@pytest.fixture(scope="module")
def featured(cluster: RealCluster) -> Iterator[RealCluster]:
    """The cluster, whose nodes have features for the duration of the test."""
    before = {
        node: cluster.run("sinfo", "--noheader", "--nodes", node, "--Format=Features:100").strip()
        for node in NODES
    }
    for node, features in NODES.items():
        set_features(cluster, node, ",".join(features))
    yield cluster
    for node, listed in before.items():
        set_features(cluster, node, listed)


def set_features(cluster: RealCluster, node: str, listed: str) -> None:
    both = (f"AvailableFeatures={listed}", f"ActiveFeatures={listed}")
    cluster.run("scontrol", "update", f"NodeName={node}", *both)


def answer(cluster: RealCluster, expression: str, node: str) -> str:
    """Return Slurm's objection to running the job on this node; "" if it would run there."""
    wanted = ("--nodes=1", f"--nodelist={node}", f"--constraint={expression}")
    ended = subprocess.run(
        ["sbatch", "--test-only", *wanted, "--wrap=true"],
        env={**os.environ, **cluster.env},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if ended.returncode == 0 else ended.stderr


def test_a_node_serves_what_slurm_would_start_there(featured: RealCluster) -> None:
    is_old = featured.driver().cluster().version[:2] == (22, 5)
    expressions = (*ALIKE, *(WORDS_BEHIND_GROUPS if is_old else ()))
    served = {
        expression: [node for node in NODES if not answer(featured, expression, node)]
        for expression in expressions
    }
    expected = {
        expression: [node for node, features in NODES.items() if matches(expression, features)]
        for expression in expressions
    }
    assert expected == served
    assert all(map(readable, expressions))


def test_every_expression_that_slurm_accepts_can_be_read(featured: RealCluster) -> None:
    is_old = featured.driver().cluster().version[:2] == (22, 5)
    for expression in ACCEPTED:
        for node, features in NODES.items():
            said = answer(featured, expression, node)
            assert "Invalid feature" not in said or not is_old, "later releases refuse some"
            assert said or matches(expression, features), expression
        assert readable(expression)


def test_feature_expressions_that_slurm_refuses_are_unreadable(featured: RealCluster) -> None:
    for expression in REFUSED:
        assert "Invalid feature" in answer(featured, expression, "n1"), expression
        assert not readable(expression)
