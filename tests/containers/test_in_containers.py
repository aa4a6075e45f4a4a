"""docker-compose.yml on a Docker engine: jobs are preempted and resumed, and kills survived.

Skipped if no engine can be reached; ``scripts/dev containers`` starts its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from scripts import ROOT
from scripts.testbed.patience import wait_until
from tests.containers.composed import PATIENCE_S, SERVICES, Composed, UnavailableError, composed

pytestmark = [pytest.mark.containers, pytest.mark.long]

EVERYTHING = ("--gpus=16", "--nodes=4", "--ntasks=4")
TRAINING = "examples/train.sbatch"
DEFAULT_CAPABILITIES = 0xA80425FB
"""The capabilities that Docker leaves to root in an unprivileged container."""
NO_CONTROLLER = 3
"""The exit code of status if no controller runs."""
ROOT_IN_CONTAINER = {"n1", "n2", "n3", "n4"}


@pytest.fixture(scope="module")
def containers() -> Iterator[Composed]:
    try:
        with composed() as whole:
            yield whole
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert not whole.left_over()


def test_every_service_is_healthy(containers: Composed) -> None:
    assert {service: containers.health(service) for service in SERVICES} == dict.fromkeys(
        SERVICES, "healthy"
    )
    assert containers.containers().keys() == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_no_container_is_privileged_or_can_become_so(containers: Composed, service: str) -> None:
    host = containers[service].attrs["HostConfig"]
    assert not host["Privileged"]
    assert not host["CapAdd"]
    assert not host["Devices"]
    assert not host["PortBindings"]
    assert host["PidMode"] != "host" and host["NetworkMode"] != "host"
    shown = containers.tell(service, "cat", "/proc/1/status")
    status = dict(line.split(":\t", 1) for line in shown.splitlines())
    effective = int(status["CapEff"], 16)
    if service in ROOT_IN_CONTAINER:
        assert effective & ~DEFAULT_CAPABILITIES == 0
    else:
        assert status["Uid"].split()[0] != "0"
        assert effective == 0 and int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_no_port_can_be_reached_from_outside(containers: Composed) -> None:
    for container in containers.containers().values():
        assert not any(container.ports.values())
    for network in containers.client.networks.list(filters=containers.ours):
        assert network.attrs["Internal"]


def test_the_key_is_made_at_the_start_and_not_in_the_image(containers: Composed) -> None:
    image = containers["login"].image
    found = containers.client.containers.run(
        image, ["find", "/etc/munge", "/var/lib/mysql", "-type", "f"], remove=True
    )
    assert found == b""
    keys = {containers.tell(one, "sha256sum", "/etc/munge/munge.key") for one in ("n1", "login")}
    assert len(keys) == 1
    code, said = containers.ask("login", "cat", "/etc/munge/munge.key", user="alice")
    assert code != 0 and "Permission denied" in said


def test_the_users_are_the_same_everywhere(containers: Composed) -> None:
    services = [service for service in SERVICES if service != "mariadb"]
    assert len({containers.tell(service, "getent", "passwd") for service in services}) == 1


def test_doctor_finds_nothing_that_keeps_the_controller_from_acting(containers: Composed) -> None:
    _, said = containers.ask("controller", "tiresias-slurm", "doctor", "--json")
    findings = json.loads(said)["findings"]
    assert [one for one in findings if one["severity"] == "error"] == []


def test_the_commands_in_the_documentation_work_verbatim(containers: Composed) -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    lines = re.findall(r"^ {4}docker compose exec (.+)$", page, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        said = containers.run("exec", "-T", *line.removesuffix(" --watch").split())
        if submitted := re.search(r"Submitted batch job (\d+)", said):
            _wait_until_seen(containers, submitted[1])
    containers.as_alice("scancel", "--user=alice")


def _wait_until_seen(containers: Composed, job: str) -> None:
    wait_until(lambda: containers.job(job), f"the controller sees job {job}", PATIENCE_S)


def test_a_preempted_and_resumed_job_is_told_by_status_and_explain(containers: Composed) -> None:
    wide = containers.submit(*EVERYTHING, TRAINING, "--steps=60")
    wait_until(lambda: containers.job(wide).get("tier") == 1, "the demotion", PATIENCE_S)
    narrow = containers.submit("--gpus=2", TRAINING, "--steps=1000", user="bob")
    wait_until(
        lambda: (
            containers.job(wide).get("preempted_by") == narrow
            and containers.job(wide)["state"] == "pending"
            and containers.job(narrow).get("state") == "running"
        ),
        "the preemption",
        PATIENCE_S,
    )
    shown = containers.as_alice("tiresias-slurm", "status", "-j", wide)
    assert f"1 by {narrow}" in shown
    explained = containers.as_alice("tiresias-slurm", "explain", wide)
    assert f"preempted once, by job {narrow} of bob" in explained
    assert "It kept its job id and the service it attained." in explained

    containers.tell("login", "scancel", narrow, user="bob")
    _wait_for_the_end(containers, wide)
    _expect_each_step_once(containers, wide, steps=60)
    runs = containers.as_alice("sacct", "-D", "-X", "-n", "-P", "-o", "State", "-j", wide)
    assert runs.split() == ["REQUEUED", "COMPLETED"]


def test_a_killed_controller_continues_from_its_ledger(containers: Composed) -> None:
    job = containers.submit(*EVERYTHING, TRAINING, "--steps=1000")
    wait_until(lambda: containers.job(job).get("tier") == 1, "the demotion", PATIENCE_S)
    attained = containers.job(job)["attained_gpu_s"]
    containers["controller"].kill()
    wait_until(
        lambda: containers.ask("login", "tiresias-slurm", "status")[0] == NO_CONTROLLER,
        "status says that none runs",
        PATIENCE_S,
    )
    state = containers.as_alice("squeue", "-h", "-o", "%T", "-j", job)
    assert state.strip() == "RUNNING"
    containers["controller"].start()
    containers.wait_until_healthy("controller", "login")
    known = containers.job(job)
    assert known["tier"] == 1 and known["attained_gpu_s"] > attained
    assert known["restarts"] == 0
    containers.as_alice("scancel", job)


def test_slurmctld_is_killed_and_neither_job_nor_controller_is_lost(containers: Composed) -> None:
    job = containers.submit("--gpus=2", TRAINING, "--steps=80")
    wait_until(lambda: containers.job(job).get("state") == "running", "its start", PATIENCE_S)
    _wait_until_slurmctld_has_saved(containers, job)
    controller = containers["controller"].attrs["State"]["StartedAt"]
    containers["slurmctld"].kill()
    containers.wait_for_health("controller", "unhealthy")
    containers["slurmctld"].start()
    containers.wait_until_healthy()
    _wait_for_the_end(containers, job)
    _expect_each_step_once(containers, job, steps=80)
    assert containers["controller"].attrs["State"]["StartedAt"] == controller
    newest = json.loads(containers.as_alice("tiresias-slurm", "status", "--json"))
    assert newest["failures"] == 0 and newest["failed_cycles"]


def _wait_until_slurmctld_has_saved(containers: Composed, job: str) -> None:
    """slurmctld saves its state within seconds; what it has not saved when it is killed is lost."""
    changed = float(containers.as_alice("date", "+%s.%N"))
    containers.as_alice("scontrol", "update", f"JobId={job}", "Comment=saved")
    state = "/var/lib/slurm/slurmctld/job_state"
    wait_until(
        lambda: float(containers.tell("slurmctld", "stat", "-c", "%.9Y", state)) > changed,
        "slurmctld has saved",
        PATIENCE_S,
    )


def _wait_for_the_end(containers: Composed, job: str) -> None:
    asked = ("squeue", "-h", "-t", "all", "-o", "%T", "-j", job)
    wait_until(
        lambda: containers.as_alice(*asked).strip() == "COMPLETED",
        f"the end of job {job}",
        PATIENCE_S,
    )


def _expect_each_step_once(containers: Composed, job: str, steps: int) -> None:
    proof = containers.as_alice(
        *("python3", "examples/train.py", f"--steps={steps}", f"--dir=train-{job}", "--verify")
    )
    assert json.loads(proof)["each_step_once"], proof
