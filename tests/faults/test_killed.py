"""kill -9 of the controller, at every critical point and at random."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from scripts.testbed import kill_points, kill_sweep
from scripts.testbed.busy_load import kill_at_random
from scripts.testbed.kill_points import AFTER, INSIDE, KillPoint
from scripts.testbed.real_cluster import RealCluster

A_FEW = (
    KillPoint("update-node_list", AFTER),
    KillPoint("requeue", AFTER),
    KillPoint("commit-answered-1", INSIDE),
)
"""The setting with most operations under way."""


def test_every_method_of_the_driver_is_classified_as_reading_or_writing() -> None:
    assert kill_points.methods_of_the_driver() == kill_points.READING | kill_points.WRITING
    assert not kill_points.READING & kill_points.WRITING


def test_every_write_and_every_commit_is_tested_in_some_setting() -> None:
    reached = {
        point.name for setting in kill_sweep.ALL_SETTINGS for point in kill_sweep.points_of(setting)
    }
    assert reached | kill_sweep.NOT_REACHED == {point.name for point in kill_points.everywhere()}
    assert kill_sweep.ELSEWHERE.keys() | kill_sweep.NOT_REACHED <= {
        p.name for p in kill_points.everywhere()
    }


@pytest.mark.slurm
def test_a_controller_killed_while_it_acts_loses_nothing_and_harms_no_job(
    clean_cluster: RealCluster, tmp_path: Path
) -> None:
    kills = [kill_sweep.kill_at(point, kill_sweep.AT_WORK) for point in A_FEW]
    assert kill_sweep.kill_each(kills, clean_cluster, tmp_path).wrong == []


@pytest.mark.slurm
def test_a_controller_killed_at_random_loses_nothing_and_harms_no_job(
    clean_cluster: RealCluster, tmp_path: Path
) -> None:
    at_random = partial(kill_at_random, chance=random.Random(0), longest_s=3.0)
    kills = [(f"kill {number}", at_random) for number in range(3)]
    assert kill_sweep.kill_each(kills, clean_cluster, tmp_path).wrong == []
