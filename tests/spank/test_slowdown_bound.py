"""Jobs that report and are near the bound on their slowdown, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster
from tests.spank.test_estimates import STEP_S, THRESHOLD_GPU_S, TRAIN, Site

pytestmark = pytest.mark.slurm

LONG_S = 60.0
"""Its service is that of the second tier, and what it may wait is less than a start may take."""

OFTEN = {"REPORT_EVERY_S": 1}


@pytest.fixture
def site(plugin: PluginCluster, tmp_path: Path) -> Iterator[Site]:
    policy = {
        "thresholds_gpu_s": [THRESHOLD_GPU_S],
        "max_slowdown": 1.5,
    }
    preemption = {"min_run_s": 0.5, "budget_share": 0}
    with open_channel(
        plugin, tmp_path, TRAIN, policy=policy, preemption=preemption, constants=OFTEN
    ) as controller:
        yield Site(plugin, controller)


def test_a_run_near_its_bound_is_not_preempted_and_once_it_waits_it_goes_before_all(
    site: Site,
) -> None:
    controller = site.controller
    long = site.train(round(LONG_S / STEP_S))
    site.wait_until_ranked_by_reports(long)
    controller.wait_for_tier(long, 1)
    short = site.submit("sleep 600")
    controller.wait_until(
        lambda: (
            (seen := controller.job(short)) is not None
            and [(one.job_id, one.protection) for one in seen.blockers]
            == [(long, "fair-share-bound")]
        ),
        "the short job waits for the long one, which is near its bound",
    )
    assert "It is near its bound" in site.explained(long)
    assert "if it had to wait again, it could exceed policy.max_slowdown" in site.explained(short)
    shown = controller.job(long)
    assert shown is not None and shown.bound is not None
    assert (shown.bound.kept, shown.bound.length_known) == (True, True)

    # Its administrator requeues it, and another job gets its GPUs. That one has much to do, by its
    # own reports, so it is far from its bound.
    controller.cluster.run("scancel", short)
    other = site.train(round(100 * LONG_S / STEP_S))
    site.plugin.requeue(long)
    controller.wait_until(
        lambda: (other, long) in controller.events("preempted") and site.is_running(long),
        "the long job has preempted the other one and runs again",
    )
