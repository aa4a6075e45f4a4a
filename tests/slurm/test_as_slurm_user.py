"""The controller needs only Slurm's own rights: only slurmd runs as root.

slurmctld and slurmdbd run as SlurmUser, the controller runs as SlurmUser or as an operator, with no
capability and no way to get one, and the jobs belong to a third user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.traffic_files import rounds_of, traffic_file
from tests.other_user import as_root

SLURM_USER, OPERATOR, THEIR_USER = "slurm", "daemon", "games"
"""Users that Debian and Slurm's packages create."""


def is_there(user: str) -> bool:
    return any(entry.pw_name == user for entry in pwd.getpwall())


pytestmark = [
    pytest.mark.slurm,
    as_root,
    pytest.mark.skipif(
        not all(map(is_there, (SLURM_USER, OPERATOR, THEIR_USER))), reason="a user is missing"
    ),
]

CORPUS = Path(__file__).parents[1] / "corpus"
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")

AS_ANOTHER = """
import importlib, os, pkgutil, pwd, sys
import slurm_tiresias
for module in pkgutil.walk_packages(slurm_tiresias.__path__, "slurm_tiresias."):
    # The library for jobs is imported by jobs alone, and partly needs what they train with.
    if not module.name.startswith("slurm_tiresias.job.") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
user = pwd.getpwnam(sys.argv.pop(1))
os.setgroups([]), os.setresgid(*[user.pw_gid] * 3), os.setresuid(*[user.pw_uid] * 3)
os.umask(0o077)
os.chdir("/")
from slurm_tiresias.cli.main import main
sys.exit(main())
"""
"""The user may be unable to reach the interpreter of a virtual environment: import everything, then
drop privileges. The umask is that of etc/tiresias-slurm.service."""


def program_of(user: str) -> Sequence[str]:
    return ("setpriv", "--no-new-privs", sys.executable, "-c", AS_ANOTHER, user)


@pytest.fixture(scope="module")
def slurm_users_cluster() -> Iterator[RealCluster]:
    lines = ("--slurm-conf-line", "PrivateData=jobs,usage,users")
    options = ("--nodes", "2", "--slurm-user", SLURM_USER, *lines)
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        cluster.run(
            *("sacctmgr", "-i", "add", "user", OPERATOR), *("account=root", "adminlevel=Operator")
        )
        yield cluster


@pytest.fixture
def controllers_user() -> str:
    return SLURM_USER


@pytest.fixture
def collect_dir(controllers_user: str) -> Iterator[Path]:
    """The folder of docs/how-to/placement.md: the nodes' root writes, the controller reads."""
    with short_folder() as folder:
        shutil.chown(folder, controllers_user, controllers_user)
        folder.chmod(0o750)
        yield folder


@pytest.fixture
def controller(
    slurm_users_cluster: RealCluster, controllers_user: str, collect_dir: Path
) -> Iterator[RealController]:
    settings: dict[str, dict[str, object]] = {"profiler": {"collect_dir": str(collect_dir)}}
    with short_folder() as folder:
        controller = RealController(slurm_users_cluster, folder, settings)
        controller.state_dir.mkdir(mode=0o755)
        shutil.chown(controller.state_dir, controllers_user, controllers_user)
        controller.write_config()
        yield controller
        controller.end()
        slurm_users_cluster.run("scancel", f"--user={THEIR_USER}")
        slurm_users_cluster.clean()


def submitted(cluster: RealCluster, *options: str) -> str:
    """A job of the third user."""
    user = pwd.getpwnam(THEIR_USER)
    rights = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    sbatch = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *WHOLE_NODE)
    return cluster.run("setpriv", *rights, *sbatch, *options).strip()


def leave_traffic(collect_dir: Path, job: str) -> Path:
    """Create a file as the plugin does: it belongs to root on its node."""
    file = collect_dir / f"{job}.0.n1.traffic"
    file.write_bytes(traffic_file(rounds_of(list(tensor_sizes("vgg16")), 9)))
    os.chown(file, 0, collect_dir.stat().st_gid)
    file.chmod(0o640)
    return file


@pytest.mark.parametrize("controllers_user", [SLURM_USER, OPERATOR])
def test_the_controller_works_fully_as_slurm_user_or_operator(
    slurm_users_cluster: RealCluster,
    controller: RealController,
    controllers_user: str,
    collect_dir: Path,
) -> None:
    cluster = slurm_users_cluster
    controller.start(program=program_of(controllers_user))
    assert controller.process is not None
    assert_has_no_rights(controller.process.pid, controllers_user)
    wall = [submitted(cluster, "--wrap=sleep 600") for _ in range(2)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    preemptor = submitted(cluster, "--wrap=sleep 1")
    cluster.wait_for_state(preemptor, "COMPLETED")
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    ((victim, other),) = controller.events("preempted")
    assert victim in wall and other == preemptor
    cluster.wait_for_state(victim, "RUNNING")
    assert cluster.squeue_field(victim, "RestartCnt") == "1"
    controller.wait_until(lambda: len(controller.runs(victim)) == 2, "both runs are known")
    controller.wait_until(
        lambda: all(i.confirmed for i in controller.runs(victim) if i.end_s is not None),
        "accounting has told how long the first was",
    )
    file = leave_traffic(collect_dir, preemptor)
    controller.wait_until(lambda: not file.exists(), "what the preemptor sent is learned")
    refused = [event.text for event in controller.state().events if event.kind == "failed"]
    assert not any("denied" in text for text in refused), refused
    assert_is_its_own(controller.state_dir, controllers_user)
    assert (collect_dir / "known").stat().st_uid == pwd.getpwnam(controllers_user).pw_uid


def test_files_made_by_root_before_the_first_start_do_not_hinder_the_controller(
    controller: RealController, controllers_user: str
) -> None:
    profiles = controller.folder / "profiles.json"
    profiles.write_text((CORPUS / "profiles" / "two").read_text())
    for command in ("pause", "ledger rebuild", "hand-back", "resume", f"profile import {profiles}"):
        ended = controller.cli(*command.split())
        assert ended.returncode == 0, ended.stderr
    controller.start(program=program_of(controllers_user))
    assert_is_its_own(controller.state_dir, controllers_user)


def assert_has_no_rights(pid: int, user: str) -> None:
    status = Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    assert set(lines["Uid"].split()) == {str(pwd.getpwnam(user).pw_uid)}
    assert lines["Groups"].strip() == "" and lines["NoNewPrivs"].strip() == "1"
    assert {int(lines[kind], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}


def assert_is_its_own(state_dir: Path, user: str) -> None:
    """All files belong to the controller's user, and only those meant for other users are
    accessible to them."""
    modes = {path.name: path.lstat().st_mode & 0o777 for path in state_dir.iterdir()}
    owners = {path.owner() for path in state_dir.iterdir()}
    assert owners == {user}
    open_to_others = {name for name, mode in modes.items() if mode != 0o600}
    assert open_to_others == {"tiresias.sock"}
    assert {"ledger.sqlite", "lock", "state.json", "profiles.sqlite"} < set(modes)
