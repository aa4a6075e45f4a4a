"""The contents of docker-compose.yml, the Dockerfile and the configuration, without an engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import ROOT
from scripts.tools.containers.image import DOCKERFILE, IMAGE, base_image
from slurm_tiresias.config import load
from tests.containers.composed import SERVICES

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
ETC = ROOT / "containers" / "etc"
SLURMD = {"n1", "n2", "n3", "n4"}
FORBIDDEN = {
    *("cap_add", "cgroup", "cgroup_parent", "device_cgroup_rules", "devices", "expose"),
    *("ipc", "network_mode", "pid", "ports", "privileged", "userns_mode", "uts", "environment"),
}
"""Settings that give a container additional rights, or publish a port."""


def services() -> Mapping[str, Mapping[str, Any]]:
    named: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
    return named


def test_every_daemon_is_a_separate_service() -> None:
    assert services().keys() == set(SERVICES)
    words = {name: " ".join(service["command"]) for name, service in services().items()}
    for name in ("slurmdbd", "slurmctld", *SLURMD):
        daemon = "slurmd" if name in SLURMD else name
        assert words[name].split()[-2:] == [daemon, "-D"]


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    service = services()[name]
    assert not FORBIDDEN & service.keys()
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name in SLURMD:
        assert "user" not in service
        assert {"NET_RAW", "MKNOD", "SETPCAP", "SYS_CHROOT"} <= set(service["cap_drop"])
    else:
        assert service["user"] in ("slurm", "mysql")
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_specific_health_check(name: str) -> None:
    check = services()[name]["healthcheck"]
    wanted = {
        "mariadb": "mysqladmin",
        "slurmdbd": "sacctmgr",
        "slurmctld": "scontrol ping",
        "controller": "tiresias-slurm status",
        "login": "tiresias-slurm status",
    }
    assert wanted.get(name, "sinfo") in " ".join(check["test"])
    assert check["retries"] and check["start_period"] and check["timeout"]


def test_only_volumes_are_mounted_and_nothing_of_the_host() -> None:
    mounted = {
        volume.split(":")[0] for service in services().values() for volume in service["volumes"]
    }
    assert mounted == COMPOSE["volumes"].keys()
    assert COMPOSE["networks"] == {"default": {"internal": True}}


def test_services_can_start_in_the_order_of_their_dependencies() -> None:
    waits = {name: set(service.get("depends_on", ())) for name, service in services().items()}
    started: set[str] = set()
    while ready := {name for name in waits.keys() - started if waits[name] <= started}:
        started |= ready
    assert started == set(SERVICES)


def test_all_services_run_the_image_that_one_of_them_builds() -> None:
    assert {service["image"] for service in services().values()} == {IMAGE}
    (build,) = [service["build"] for service in services().values() if "build" in service]
    assert ROOT / build["context"] / build["dockerfile"] == DOCKERFILE
    assert base_image() == "debian:bookworm-slim"


def test_commands_and_copies_name_files_that_exist() -> None:
    for service in services().values():
        script = Path(service["command"][0].removeprefix("/opt/slurm-tiresias/"))
        assert (ROOT / script).stat().st_mode & 0o111, script
    text = DOCKERFILE.read_text()
    copied = [line.split()[1] for line in text.splitlines() if line.startswith("COPY ")]
    kept = (ROOT / ".dockerignore").read_text().split()
    assert copied and all((ROOT / name).exists() and f"!{name}" in kept for name in copied)
    for name in re.findall(r"[\w.-]+\.conf|tiresias\.toml", text):
        assert (ETC / name).is_file(), name
    for name in re.findall(r"/containers/(\S+)", text + (ETC / "mariadb.cnf").read_text()):
        assert (ROOT / "containers" / name).is_file(), name


def test_host_names_in_slurm_conf_are_the_service_names() -> None:
    lines = (ETC / "slurm.conf").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    assert values["SlurmctldHost"] in services()
    assert values["AccountingStorageHost"] in services()
    assert values["NodeName"].split()[0] == f"n[1-{len(SLURMD)}]"
    for name, service in services().items():
        assert service.get("hostname", name) == name


def test_no_file_of_the_image_holds_a_secret() -> None:
    for file in ETC.iterdir():
        assert not re.search(r"(?i)StoragePass|IDENTIFIED BY|password\s*=", file.read_text()), file


def test_the_controllers_configuration_is_valid_and_manages_the_partition() -> None:
    config = load(ETC / "tiresias.toml")
    assert f"PartitionName={config.manage.partitions[0]} " in (ETC / "slurm.conf").read_text()
    volumes = services()["controller"]["volumes"]
    assert f"controller:{config.controller.state_dir}" in volumes
