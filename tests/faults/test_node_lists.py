"""A node list that could not be restored is restored later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scripts.testbed.busy_load import faulty
from scripts.testbed.kill_points import AFTER, BEFORE, CLEARED, REFUSED, UNHEARD, KillPoint
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.slurm.hostlist import refolded

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
IN_PIECES = ("-n4", "--gpus=4", "--mem-per-cpu=10")
OF_ITS_OWN = ("-N2", "--ntasks-per-node=1", *WHOLE_NODE, "-w", "n2")


@pytest.mark.parametrize(
    ("moment", "asked", "nth"),
    [
        (REFUSED, OF_ITS_OWN, 2),
        (UNHEARD, IN_PIECES, 1),
        pytest.param(BEFORE, IN_PIECES, 1, marks=pytest.mark.long),
        pytest.param(REFUSED, IN_PIECES, 1, marks=pytest.mark.long),
        pytest.param(AFTER, IN_PIECES, 1, marks=pytest.mark.long),
    ],
    ids=["refused, of its own", "unheard", "killed before", "refused", "killed after"],
)
def test_a_node_list_that_could_not_be_restored_is_restored_later(
    clean_cluster: RealCluster,
    controller: RealController,
    moment: str,
    asked: Sequence[str],
    nth: int,
) -> None:
    # The victim's grace is long, so the preemptor's nomination lasts for the whole test.
    controller.settings = {
        **controller.settings,
        "preemption": {"min_run_s": 1, "signal": "CONT", "grace_s": 300},
    }
    name = "update-node_list" if asked is OF_ITS_OWN else CLEARED
    controller.start(program=faulty(KillPoint(name, moment), nth=nth))
    assert controller.process is not None
    for job in [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(4)]:
        controller.wait_for_tier(job, 1)
    preemptor = clean_cluster.sbatch(*asked)
    controller.wait_until(lambda: controller.job(preemptor), "it is seen")
    own = "n2" if asked is OF_ITS_OWN else ""

    def shown() -> str:
        return refolded(clean_cluster.squeue_field(preemptor, "ReqNodes"))

    controller.wait_for_reason(preemptor, "nominated")
    controller.wait_until(lambda: shown() not in ("", own), "it is nominated on named nodes")
    controller.cli("pause")
    if moment in (BEFORE, AFTER):
        controller.process.communicate(timeout=PATIENCE_S)
        controller.process = None
        controller.start()
    controller.cycles(2)
    controller.wait_until(lambda: shown() == own, "its node list is its own again")
    if moment == REFUSED:
        assert controller.events("failed") == [(preemptor, "")]
    assert controller.command("pause")["mode"] == "paused"
    controller.cycles(2)
    assert shown() == own
