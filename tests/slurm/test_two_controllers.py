"""Two controllers on one state directory: at most one acts at any time, and one always does
soon."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.testbed.pair import ONE_GPU, Pair, check_requeues, wait_until_completed, work
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import BY_COMMANDS

pytestmark = pytest.mark.slurm

PROFILES = Path(__file__).parents[1] / "corpus" / "profiles" / "two"


@pytest.fixture
def pair(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(*hosts: str) -> Pair:
        made.append(Pair(clean_cluster, tmp_path, *hosts))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def test_a_standby_takes_over_from_a_stopped_or_killed_controller_and_two_never_act(
    clean_cluster: RealCluster, pair: Callable[..., Pair]
) -> None:
    two = pair("one", "two")
    two.start("one")
    two.wait_until_acts("one")
    two.start("two")
    two.wait_for_standby("two")
    assert "two stands by" in two.controllers["two"].cli("status").stdout
    assert two.controllers["one"].cli("profile", "import", str(PROFILES)).returncode == 0
    jobs = work(clean_cluster)
    # It is stopped while it acts, with its command under way.
    stopped = two.commands.stop_at_next_write()
    clean_cluster.wait_until(lambda: not stopped.exists(), "the active one is stopped")
    two.wait_until_acts("two")
    two.signal("one", signal.SIGCONT)
    two.wait_for_standby("one")
    killed = two.pid("two")
    two.controllers["two"].kill()
    two.wait_until_acts("one")
    jobs.append(clean_cluster.sbatch(*ONE_GPU, script="sleep 1"))
    wait_until_completed(clean_cluster, jobs)
    wrote = [pid for pid, _, _ in two.spans()]
    in_turn = [two.pid("one"), killed, two.pid("one")]
    # Priorities written through pyslurm are not among the logged writes.
    assert wrote == in_turn if BY_COMMANDS else wrote == in_turn[: len(wrote)] != []
    assert "bert" in two.controllers["two"].cli("profile", "list").stdout
    check_requeues(clean_cluster, two, jobs)


@pytest.mark.long
@pytest.mark.usefixtures("own_mounts")
def test_the_controller_on_slurmctlds_active_host_is_the_one_that_acts(tmp_path: Path) -> None:
    with (
        short_folder() as folder,
        started_cluster(folder, "--nodes", "2", "--gpus", "4", "--backup") as cluster,
    ):
        two = Pair(cluster, tmp_path, "ctl1", "ctl2")
        try:
            two.start("ctl2")
            two.wait_until_acts("ctl2")
            two.start("ctl1")
            two.wait_until_acts("ctl1")
            cluster.kill("slurmctld")
            two.wait_until_acts("ctl2")
            cluster.start("slurmctld")
            two.wait_until_acts("ctl1")
            job = cluster.sbatch(*ONE_GPU, script="sleep 1")
            wait_until_completed(cluster, [job])
        finally:
            two.kill()


def test_without_standby_a_second_controller_is_refused_also_beside_a_pair(
    clean_cluster: RealCluster, pair: Callable[..., Pair]
) -> None:
    two = pair("one", "two")
    two.start("one")
    two.wait_until_acts("one")
    alone = two.controllers["two"]
    alone.settings = {"controller": {"interval_s": 2}}
    alone.write_config()
    second = alone.spawn()
    _, complaint = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 9
    assert "Another controller" in complaint and "Traceback" not in complaint
