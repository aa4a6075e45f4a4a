"""What a Docker engine of its own needs on this machine beyond what makes a Debian."""

from __future__ import annotations

import shutil
import subprocess

PROGRAMS = {"dockerd": "docker.io", "iptables": "iptables"}
"""Programs, and the packages that have them."""

COMPOSE = (("docker", "compose"), ("docker-compose",))
"""Compose as Docker's plugin, and as a command: which there is depends on the release."""


def compose_command() -> tuple[str, ...] | None:
    """How compose is called here, if it is."""
    for command in COMPOSE:
        if shutil.which(command[0]) is None:
            continue
        asked = subprocess.run([*command, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return command
    return None


def needed() -> dict[str, str]:
    """The programs that must be there, and the packages that have them."""
    return PROGRAMS if compose_command() else {**PROGRAMS, "docker-compose": "docker-compose"}
