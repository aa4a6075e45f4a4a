"""The programs that a private Docker engine needs, besides the tools that make a Debian root."""

from __future__ import annotations

import shutil
import subprocess

PROGRAMS = {"dockerd": "docker.io", "iptables": "iptables"}
"""Programs, and the packages that contain them."""

COMPOSE = (("docker", "compose"), ("docker-compose",))
"""Compose as Docker's plugin and as a command: the Debian release decides which one exists."""


def compose_command() -> tuple[str, ...] | None:
    """Return the command of compose on this machine, or None."""
    for command in COMPOSE:
        if shutil.which(command[0]) is None:
            continue
        asked = subprocess.run([*command, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return command
    return None


def needed() -> dict[str, str]:
    """Return the required programs, and the packages that contain them."""
    return PROGRAMS if compose_command() else {**PROGRAMS, "docker-compose": "docker-compose"}
