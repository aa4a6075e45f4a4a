"""What an engine of one's own needs on this machine, installed where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = {
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "setpriv": "util-linux",
}
"""Programs, and the packages that have them."""

COMPOSE = (("docker", "compose"), ("docker-compose",))
"""Compose as Docker's plugin, and as a command: which there is depends on the release."""

POLICY = Path("/usr/sbin/policy-rc.d")


class ToolsError(Exception):
    """Something is missing that cannot be installed; the text says what to do."""


def compose_command() -> tuple[str, ...] | None:
    """How compose is called here, if it is."""
    for command in COMPOSE:
        if shutil.which(command[0]) is None:
            continue
        asked = subprocess.run([*command, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return command
    return None


def missing_packages() -> list[str]:
    missing = {package for name, package in PROGRAMS.items() if shutil.which(name) is None}
    return sorted(missing | (set() if compose_command() else {"docker-compose"}))


def install(packages: list[str]) -> None:
    """Install Debian's packages, without starting the services that are in them."""
    if os.geteuid() != 0:
        raise ToolsError("only root can start a Docker engine. Run it as root")
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise ToolsError(f"not installed: {', '.join(packages)}. Install them first")
    with _nothing_started():
        if not _apt_get("install", *packages):
            _apt_get("update")
            if not _apt_get("install", *packages):
                raise ToolsError(f"apt-get install {' '.join(packages)} failed. Try it by hand")


def _apt_get(*arguments: str) -> bool:
    options = ["-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", *options, *arguments]
    return (
        subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
    )


@contextmanager
def _nothing_started() -> Iterator[None]:
    """Debian starts the services that it installs unless this file says no."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
