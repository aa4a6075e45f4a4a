"""A user who locks every file of the controller that can be opened blocks nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.real_cluster import RealCluster, short_folder
from scripts.testbed.real_controller import RealController
from scripts.testbed.traffic_files import rounds_of, traffic_file
from slurm_tiresias.profiler.store import BUSY_TIMEOUT_S
from tests.other_user import as_root

pytestmark = [pytest.mark.slurm, as_root]

LOCKS_ALL = """
import fcntl, os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
held = []
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 0, 0)
        held.append((name, descriptor))
print(*(name for name, _ in held), flush=True)
sys.stdin.read()
"""


@contextmanager
def all_locked(folder: Path) -> Iterator[list[str]]:
    """Every file that another user can open, locked by that user in every possible way."""
    command = [sys.executable, "-c", LOCKS_ALL, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()


@pytest.fixture
def collect_dir() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def controller(clean_cluster: RealCluster, collect_dir: Path) -> Iterator[RealController]:
    settings: dict[str, dict[str, object]] = {"profiler": {"collect_dir": str(collect_dir)}}
    with short_folder() as folder:
        controller = RealController(clean_cluster, folder, settings)
        controller.state_dir.mkdir(mode=0o755)
        yield controller
        controller.end()


def leave_traffic(cluster: RealCluster, collect_dir: Path) -> Path:
    """The traffic file of an ended job, so that there is something to learn."""
    job = cluster.sbatch("--gres=gpu:1", "-J", "skewed", script="true")
    cluster.wait_for_state(job, "COMPLETED")
    file = collect_dir / f"{job}.0.n1.traffic"
    file.write_bytes(traffic_file(rounds_of(list(tensor_sizes("vgg16")), 9)))
    return file


LEAST_STALL_S = BUSY_TIMEOUT_S / 2
"""The limit on a cycle's duration: a database locked by another process would delay it twice as
long; an update that slurmctld 22.05 delays takes one second."""


def longest_cycle_s(controller: RealController, count: int) -> float:
    took_s: dict[int, float] = {}

    def seen() -> bool:
        state = controller.state()
        took_s[state.cycle] = state.took_s
        return len(took_s) >= count

    controller.wait_until(seen, f"{count} cycles")
    return max(took_s.values())


@pytest.mark.parametrize(
    "locked_before_it_starts", [pytest.param(False, marks=pytest.mark.long), True]
)
def test_locks_of_another_user_delay_no_cycle(
    clean_cluster: RealCluster,
    controller: RealController,
    collect_dir: Path,
    locked_before_it_starts: bool,
) -> None:
    controller.start()
    file = leave_traffic(clean_cluster, collect_dir)
    controller.wait_until(lambda: not file.exists(), "the first file is read")
    if locked_before_it_starts:
        # As after a version that left them accessible to other users, if one of these has them
        # open.
        controller.kill()
        for path in controller.state_dir.glob("profiles.sqlite*"):
            path.chmod(0o644)
    with all_locked(controller.state_dir) as locked:
        assert "state.json" in locked
        if locked_before_it_starts:
            assert "profiles.sqlite" in locked
            controller.start()
        file = leave_traffic(clean_cluster, collect_dir)
        assert longest_cycle_s(controller, 4) < LEAST_STALL_S
        controller.wait_until(lambda: not file.exists(), "the second file is read")
    assert "placed without the stored profiles" not in controller.stop()


def test_locks_of_another_user_delay_neither_of_two_controllers(
    clean_cluster: RealCluster, controller: RealController, collect_dir: Path
) -> None:
    """They share the files of the lease and of the standbys."""
    controller.settings = {**controller.settings, "controller": {"standby": True}}
    controller.start()
    with all_locked(controller.state_dir) as locked:
        assert {"state.json", "lease-1"} <= set(locked)
        assert not [name for name in locked if "sqlite" in name and "published" not in name]
        file = leave_traffic(clean_cluster, collect_dir)
        assert longest_cycle_s(controller, 4) < LEAST_STALL_S
        controller.wait_until(lambda: not file.exists(), "the file is read")
        # The next term begins while its files are locked.
        controller.kill()
        controller.start()
        assert controller.state().term == 2


def test_other_users_see_profiles_as_they_were_published(
    clean_cluster: RealCluster, controller: RealController, collect_dir: Path
) -> None:
    file = leave_traffic(clean_cluster, collect_dir)
    controller.start()
    controller.wait_until(lambda: not file.exists(), "the file is read")
    controller.wait_until(lambda: "skewed" in listed_by_nobody(controller), "it is published")
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in controller.state_dir.glob("*profiles*")
    }
    assert {name for name, mode in modes.items() if mode != 0o600} == {"profiles-published.sqlite"}


LISTS = """
import importlib, os, pkgutil, sys
import slurm_tiresias
from slurm_tiresias.cli.main import main
import slurm_tiresias.cli.profile
os.setgroups([]), os.setgid(65534), os.setuid(65534)
sys.exit(main())
"""


def listed_by_nobody(controller: RealController) -> set[str]:
    config = ("--config", str(controller.config_file))
    ended = subprocess.run(
        [sys.executable, "-c", LISTS, *config, "profile", "list", "--json"],
        env=controller.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {profile["name"] for profile in json.loads(ended.stdout)["profiles"]}
