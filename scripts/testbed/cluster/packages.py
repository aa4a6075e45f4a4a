"""Install Debian's packages of Slurm if they are missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.testbed.cluster.locks import alone_with
from scripts.testbed.cluster.messages import ClusterError, UsageError, last_words, say
from scripts.testbed.cluster.model import SYSTEM_PATH

POLICY = Path("/usr/sbin/policy-rc.d")

POLICY_TEXT = (
    "#!/bin/sh\n# Written by slurm-tiresias scripts/cluster while it installs.\nexit 101\n"
)

PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}

ACCOUNTING_PROGRAMS = frozenset({"slurmdbd", "mariadbd", "mariadb-install-db"})


def program(name: str) -> str | None:
    return shutil.which(name, path=SYSTEM_PATH)


def missing_packages(accounting: bool, others: Sequence[str] = ()) -> list[str]:
    wanted = {
        package
        for name, package in PACKAGES.items()
        if program(name) is None and (accounting or name not in ACCOUNTING_PROGRAMS)
    }
    return sorted(wanted | {package for package in others if not is_installed(package)})


def is_installed(package: str) -> bool:
    """Whether the Debian package is installed; True on other distributions."""
    if program("dpkg-query") is None:
        return True
    question = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return answer_of(question, {**os.environ, "PATH": SYSTEM_PATH}) == (0, "installed")


def ensure_packages(accounting: bool, others: Sequence[str] = ()) -> None:
    missing = missing_packages(accounting, others)
    if not missing:
        return
    command = f"apt-get install {' '.join(missing)}"
    if program("apt-get") is None:
        raise UsageError(f"{', '.join(missing)} not found. Install Slurm from your system first.")
    if os.geteuid() != 0:
        raise UsageError(f"{', '.join(missing)} not installed. Run as root: {command}")
    with alone_with("install", "another cluster command is installing packages, waiting"):
        missing = missing_packages(accounting, others)
        if missing:
            install(missing)


def install(packages: Sequence[str]) -> None:
    say(f"installing {', '.join(packages)}")
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    environment = {**os.environ, "PATH": SYSTEM_PATH, "DEBIAN_FRONTEND": "noninteractive"}
    with no_service_started_by_packages():
        status, said = answer_of(command, environment)
        if status != 0:
            # The package lists may be outdated, or missing on a new machine.
            answer_of(["apt-get", "update", "-q"], environment)
            status, said = answer_of(command, environment)
    if status != 0:
        reason = last_words(said.splitlines(), pattern=r"^E:|error")
        raise ClusterError("\n  ".join([f"`{' '.join(command)}` failed", *reason]))


def answer_of(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command without input; return its exit status, and all that it printed."""
    ended = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return ended.returncode, ended.stdout


@contextlib.contextmanager
def no_service_started_by_packages() -> Iterator[None]:
    """Keep Debian from starting installed services, through policy-rc.d; keep an existing file."""
    if POLICY.exists() and POLICY.read_text() != POLICY_TEXT:
        yield
        return
    POLICY.write_text(POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
