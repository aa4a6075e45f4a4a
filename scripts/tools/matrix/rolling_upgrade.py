"""A rolling upgrade of Slurm under load, tested in two halves, one on each release.

    python -m scripts.tools.matrix.rolling_upgrade before FOLDER    in the older release's root
    python -m scripts.tools.matrix.rolling_upgrade after FOLDER     in the newer one's

The first starts a cluster and a controller, keeps them busy and leaves the cluster running. The
second restarts the daemons one by one from its own release while jobs run, lets its own controller
continue with the first one's state directory, and checks that nothing was lost.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.testbed.busy_load import SETTINGS, Busy, Job, drain
from scripts.testbed.patience import wait_until
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.store.ledger import FILE_NAME, Ledger

NODES, GPUS = 4, 4

SHAPES = (
    (30.0, ("-n4", "--gpus=4")),
    (20.0, ("-N2", "--ntasks-per-node=1", "--gres=gpu:2")),
    (2.0, ("-n1", "--gpus=1")),
    (30.0, ("--gres=gpu:4",)),
    (3.0, ("-n1", "--gpus=1", "-w", "n1")),
)
"""Work in seconds and options: jobs running at the upgrade have neither just begun nor ended."""

BUSY_S = 25.0
LEFT = "left.json"
"""The file in the folder that the first half leaves for the second."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was known of a pending or running job when the first controller ended."""

    key: str
    tier: int
    restarts: str
    preemptions: int
    executed_s: float
    priority: str


def before(folder: Path) -> None:
    """Leave a busy cluster of this release, whose controller has just ended."""
    folder.mkdir()
    cluster = RealCluster(folder / "c")
    cluster.up("--nodes", str(NODES), "--gpus", str(GPUS))
    controller = RealController(cluster, folder, SETTINGS)
    busy = Busy(cluster, folder, shapes=SHAPES)
    controller.start()
    until_s = time.monotonic() + BUSY_S
    while time.monotonic() < until_s or not controller.events("preempted"):
        busy.feed()
        controller.cycles(1)
    controller.stop()
    known = list(what_is_known(controller))
    jobs = [{**asdict(job), "journal": str(job.journal)} for job in busy.jobs]
    (folder / LEFT).write_text(json.dumps({"jobs": jobs, "known": [*map(asdict, known)]}))
    say(
        f"{version(cluster)}: {len(busy.jobs)} jobs so far, of which {len(known)} wait or run, "
        f"{sum(one.tier > 0 for one in known)} of them in a lower tier and "
        f"{sum(one.preemptions > 0 for one in known)} preempted before"
    )
    assert any(one.tier for one in known) and any(one.preemptions for one in known)


def after(folder: Path) -> None:
    """Let the daemons of this release take over the cluster, and then a controller."""
    left = json.loads((folder / LEFT).read_text())
    known = [Known(**one) for one in left["known"]]
    cluster = RealCluster(folder / "c")
    cluster.join()
    controller = RealController(cluster, folder, SETTINGS)
    jobs = [Job(**{**job, "journal": Path(job["journal"])}) for job in left["jobs"]]
    busy = Busy(cluster, folder, jobs, shapes=SHAPES)
    began_s = time.monotonic()
    upgrade(cluster)
    say(f"{version(cluster)}: all daemons restarted in {time.monotonic() - began_s:.1f} s")
    wrong = [*changed_by_slurm(cluster, known)]
    controller.start()
    wrong += forgotten(controller, known)
    controller.stop()
    busy.feed()
    wrong += drain(controller, busy)
    ended = len(busy.jobs)
    cluster.down()
    if wrong:
        sys.exit("\n  ".join([f"{len(wrong)} problems:", *wrong]))
    say(f"all {ended} jobs have ended, and nothing was lost")


def upgrade(cluster: RealCluster) -> None:
    """Restart every daemon from this release, in the order of Slurm's upgrade guide."""
    cluster.kill("slurmdbd", signal="TERM")
    restart(cluster, "database")
    cluster.start("slurmdbd")
    known = ("sacctmgr", "-n", "show", "cluster")
    wait_until(lambda: cluster.answers(*known), "slurmdbd answers")
    restart(cluster, "slurmctld")
    wait_until(lambda: cluster.answers("squeue"), "slurmctld answers")
    for number in range(1, NODES + 1):
        restart(cluster, f"slurmd.n{number}")
        node = ("scontrol", "show", "-o", "node", f"n{number}")
        cluster.wait_until(
            lambda: f"Version={version(cluster)} " in cluster.run(*node),  # noqa: B023
            f"n{number} up",
        )


def restart(cluster: RealCluster, daemon: str) -> None:
    cluster.kill(daemon, signal="TERM")
    cluster.start(daemon)


def what_is_known(controller: RealController) -> Iterator[Known]:
    """Yield what the ledger and Slurm know of each job that has not ended."""
    cluster = controller.cluster
    priorities = cluster.squeue_fields("PriorityLong")
    restarts = cluster.squeue_fields("RestartCnt")
    with closing(Ledger(controller.state_dir / FILE_NAME)) as ledger:
        for record in ledger.jobs.live().values():
            if record.ended_s is None:
                yield Known(
                    key=record.key,
                    tier=record.tier,
                    restarts=restarts.get(record.key, ""),
                    preemptions=record.preemptions,
                    executed_s=sum(i.elapsed_s for i in ledger.runs.of(record.key)),
                    priority=priorities.get(record.key, ""),
                )


def changed_by_slurm(cluster: RealCluster, known: Sequence[Known]) -> Iterator[str]:
    """Yield what the new slurmctld changed, before the controller writes to it."""
    restarts = cluster.squeue_fields("RestartCnt")
    priorities = cluster.squeue_fields("PriorityLong")
    for one in known:
        if one.key not in restarts:
            yield f"job {one.key} is gone"
        elif restarts[one.key] != one.restarts:
            yield f"job {one.key} was restarted by the upgrade"
        elif priorities[one.key] != one.priority:
            yield f"job {one.key} had priority {one.priority} and has {priorities[one.key]}"


def forgotten(controller: RealController, known: Sequence[Known]) -> Iterator[str]:
    """Yield the jobs for which the new controller knows less than the old one."""
    now = {one.key: one for one in what_is_known(controller)}
    for was in known:
        if (one := now.get(was.key)) is None:
            continue  # It has ended; all ended jobs are checked at the end.
        if one.tier < was.tier or one.preemptions < was.preemptions:
            yield f"job {was.key} was in tier {was.tier} and is in {one.tier}"
        if one.executed_s < was.executed_s:
            yield f"job {was.key} had run {was.executed_s:.1f} s, and now {one.executed_s:.1f} s"


def version(cluster: RealCluster) -> str:
    return cluster.run("scontrol", "-V").split()[-1]


def say(text: str) -> None:
    print(f"upgrade: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    {"before": before, "after": after}[sys.argv[1]](Path(sys.argv[2]))
