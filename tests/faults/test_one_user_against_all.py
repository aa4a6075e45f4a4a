"""One user makes every attack at once against ten others, on 15 nodes of four GPUs.

Its jobs hold eight GPUs as an ordinary user's would, a little more than an eleventh of the 60. What
it tries beyond that must not cost the others anything: the same jobs come a second time without an
attack. Long, and to be run alone: it compares times.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scripts.testbed.busy_load import JOB, MICRO, Busy, Job, violations
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import LoggedCycle, RealController, logged_cycles
from tests.slurm.test_hostile_users import ATTACKER_ID, LONGEST_CYCLE_S, LUA, attacks, pytestmark

__all__ = ["pytestmark"]

ATTACKER = Path(__file__).parents[1] / "slurm" / "attacker.py"
HONEST = ("daemon", "bin", "sys", "games", "man", "lp", "mail", "news", "uucp", "proxy")
LONG, SHORT = ("-n4", "--gpus=4"), ("-n1", "--gpus=1")
LONG_S, SHORT_S = 20.0, 2.0
ROUNDS = 6
ATTACK_S = 60.0
SETTINGS: dict[str, dict[str, object]] = {
    "preemption": {"min_run_s": 1},
    "constants": {"BUDGET_WINDOW_S": 60},
}


@dataclass
class Users(Busy):
    """Ten users, each with one long job and a short one every other second."""

    submitted_s: dict[str, float] = field(default_factory=dict)
    program: Path = JOB

    def submit_as(self, user: str, work_s: float, options: Sequence[str]) -> None:
        journal = self.folder / f"{len(self.jobs)}.journal"
        journal.touch()
        shutil.chown(journal, user)
        rights = ("setpriv", f"--reuid={user}", "--clear-groups")
        given = ("--parsable", "--mem-per-cpu=10", "--output=/dev/null", "--chdir=/tmp")
        work = (str(self.program), str(journal), str(round(work_s * MICRO)), "0")
        key = self.cluster.run(*rights, "sbatch", *given, *options, *work).strip()
        self.submitted_s[key] = time.time()
        self.jobs.append(Job(key, work_s, "", journal))

    def come(self) -> None:
        for user in HONEST:
            self.submit_as(user, LONG_S, LONG)
        for _ in range(ROUNDS):
            until_s = time.monotonic() + 2.0
            for user in HONEST:
                self.submit_as(user, SHORT_S, SHORT)
            time.sleep(max(0.0, until_s - time.monotonic()))

    def completion_times_s(self) -> list[float]:
        """Completion times of the jobs, in the order of submission."""
        ends_s = (float(job.journal.read_text().splitlines()[-1].split()[1]) for job in self.jobs)
        return [
            end_us / MICRO - self.submitted_s[job.key]
            for job, end_us in zip(self.jobs, ends_s, strict=True)
        ]


@dataclass(frozen=True)
class Course:
    """The results of the honest jobs, and the cycles meanwhile."""

    jct_s: list[float]
    wrong: list[str]
    cycles: Sequence[LoggedCycle]
    said: str
    release: tuple[int, ...]

    @property
    def longest_s(self) -> float:
        return max(cycle.read_s + cycle.decided_s + cycle.wrote_s for cycle in self.cycles)

    @property
    def longest_without_writes_s(self) -> float:
        return max(cycle.read_s + cycle.decided_s for cycle in self.cycles)


@contextmanager
def _cluster(folder: Path) -> Iterator[RealCluster]:
    lua = folder / "job_submit.lua"
    lua.write_text(LUA.read_text())
    lines = ("--slurm-conf-line", "JobSubmitPlugins=lua", "--conf-file", str(lua))
    options = ("--nodes", "15", "--gpus", "4", "--partition", "gpu", "other", *lines)
    with started_cluster(folder, *options) as cluster:
        yield cluster


def course(*, attacked: bool) -> Course:
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        cluster = stack.enter_context(_cluster(folder))
        journals = folder / "journals"
        journals.mkdir(mode=0o755)
        program = Path(shutil.copy(JOB, folder))
        users = Users(cluster, journals, program=program)
        controller = stack.enter_context(_controller(cluster, folder / "controller"))
        walls = [attacks(cluster, "-n4", "--gpus=4", "--mem=100") for _ in range(2)]
        for wall in walls:
            controller.wait_for_tier(wall, 1)
        began_s = time.monotonic()
        with _attack(controller, walls if attacked else []) as attacker:
            users.come()
            users.wait_until_all_have_ended()
            _wait_until(began_s + ATTACK_S if attacked else 0.0)
        said = attacker.communicate()[0] if attacker else ""
        cluster.run("scancel", f"--user={ATTACKER_ID}")
        controller.cycles(10)
        wrong = list(violations(controller, users))
        failed = controller.state().failed_cycles
        if failed:
            wrong.append(f"failed cycles: {failed}")
        cycles = logged_cycles(controller.stop())
        release = cluster.driver().cluster().version[:2]
        return Course(users.completion_times_s(), wrong, cycles, said, release)


@contextmanager
def _controller(cluster: RealCluster, folder: Path) -> Iterator[RealController]:
    folder.mkdir(mode=0o755)
    controller = RealController(cluster, folder, SETTINGS).start("-v")
    try:
        yield controller
    finally:
        controller.end()


@contextmanager
def _attack(
    controller: RealController, walls: Sequence[str]
) -> Iterator[subprocess.Popen[str] | None]:
    if not walls:
        yield None
        return
    command = (sys.executable, str(ATTACKER), str(ATTACKER_ID), str(controller.state_dir))
    attacker = subprocess.Popen(
        [*command, str(ATTACK_S), *walls],
        env=controller.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield attacker
    finally:
        attacker.wait(timeout=60)


def _wait_until(until_s: float) -> None:
    time.sleep(max(0.0, until_s - time.monotonic()))


def most_s(cluster_release: tuple[int, ...]) -> float:
    """slurmctld 22.05 sleeps a second before it answers an update of a job that slurmdbd is just
    being told of (``_slurm_rpc_update_job``); later releases answer at once."""
    return LONGEST_CYCLE_S + (2.0 if cluster_release == (22, 5) else 0.0)


@pytest.mark.long
def test_all_attacks_together_cost_other_users_only_the_attackers_share() -> None:
    alone = course(attacked=False)
    attacked = course(attacked=True)
    figures = [
        f"{what}: average JCT {statistics.mean(one.jct_s):.1f} s, median "
        f"{statistics.median(one.jct_s):.1f}, most {max(one.jct_s):.1f}; longest of "
        f"{len(one.cycles)} cycles {one.longest_s:.2f} s, {one.longest_without_writes_s:.2f} "
        f"without what Slurm took to write; {one.said.strip()}"
        for what, one in (("alone", alone), ("attacked", attacked))
    ]
    print("\n" + "\n".join(figures))
    assert not alone.wrong and not attacked.wrong, (alone.wrong, attacked.wrong)
    assert attacked.longest_without_writes_s < LONGEST_CYCLE_S, figures
    assert attacked.longest_s < most_s(attacked.release), figures
    assert statistics.mean(attacked.jct_s) < 1.25 * statistics.mean(alone.jct_s), figures
    assert max(attacked.jct_s) < 1.5 * max(alone.jct_s), figures
