"""Follow the README and the page on installation line by line on a clean Debian with a running
Slurm."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.testbed.debian.root import Root
from scripts.tools.docs.commands import Command, in_section
from scripts.tools.docs.pages import page
from scripts.tools.packages.package_test import CONFIG, SERVICE, TrialError, expect, sees_a_job

PACKAGES = ("README.md", "From nothing to shadow mode")
BACK = ("README.md", "Undo it")
WITHOUT_PACKAGES = ("docs/how-to/install.md", "Without packages")
"""Pages and their sections."""

MOST_S = 600.0
"""Ten minutes of machine time; a person also needs time to read."""

PIP_FILES = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files that define this machine's package index for pip, and whose certificates it trusts."""

SLURM_CONF = """\
ClusterName=new
SlurmctldHost=localhost
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
NodeName=localhost CPUs=2 Gres=gpu:2
PartitionName=gpu Nodes=localhost Default=YES
"""
"""A minimal configuration: a partition of one node with two fake GPUs, and no accounting."""
GRES_CONF = """\
AutoDetect=off
Name=gpu File=/dev/null
Name=gpu File=/dev/zero
"""
CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
"""
"""With this, Slurm 22.05 does not detect the kind of cgroups."""


def has_a_running_slurm(root: Root) -> None:
    """Debian's Slurm, as its services run it."""
    root.apt_get("update")
    root.apt_get("install", "--no-install-recommends", "munge", "slurm-wlm", "python3-venv")
    hosts = f"127.0.0.1 localhost {socket.gethostname()}\n"
    (root.folder / "etc" / "hosts").write_text(hosts)
    etc = root.folder / "etc" / "slurm"
    (etc / "slurm.conf").write_text(SLURM_CONF)
    (etc / "gres.conf").write_text(GRES_CONF)
    (etc / "cgroup.conf").write_text(CGROUP_CONF)
    root.run("systemctl", "restart", "munge", "slurmctld", "slurmd")
    root.until("Slurm starts jobs", "timeout", "10", "srun", "--gpus=1", "true")


def follows_the_readme(root: Root) -> None:
    """From a fresh machine to shadow mode with the README's commands, and uninstalled after
    acting."""
    began = time.monotonic()
    for command in _commands(PACKAGES):
        if command.text.endswith("shadow report"):
            # The README runs it a week later.
            continue
        _does(root, command)
        if command.text.startswith("tiresias-slurm status"):
            _is_in_shadow_mode(root)
    took_s = time.monotonic() - began
    print(f"   from nothing to shadow mode in {took_s:.0f} s")
    expect(took_s < MOST_S, f"it took {took_s:.0f} s")
    sees_a_job(root)
    _acts(root)
    for command in _commands(BACK):
        _does(root, command)
    _left_nothing(root)


def follows_it_without_packages(root: Root) -> None:
    """The same with a virtual environment, uninstalled from shadow mode."""
    _let_pip_fetch_as_here(root)
    for command in _commands(WITHOUT_PACKAGES):
        _does(root, command)
        if command.text == f"systemctl enable --now {SERVICE}":
            _is_in_shadow_mode(root)
    _left_nothing(root)


def _let_pip_fetch_as_here(root: Root) -> None:
    for path in PIP_FILES:
        if Path(path).exists():
            copy = root.folder / path.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)


def _commands(section_of_page: tuple[str, str]) -> Iterator[Command]:
    name, section = section_of_page
    yield from in_section(page(name), section)


def _does(root: Root, command: Command) -> None:
    """Run a command as root in the checkout; ``doctor`` may exit with findings."""
    began = time.monotonic()
    of_pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    code, text = root.ask("sh", "-c", f"cd /src && {command.text}", env=of_pip)
    print(f"   {command.text}: {time.monotonic() - began:.1f} s", flush=True)
    finds = command.text.startswith("tiresias-slurm doctor") and code in (12, 13)
    if code != 0 and not finds:
        raise TrialError(f"{command} ended with {code}:\n{text[-3000:]}")
    if command.text.startswith("tiresias-slurm"):
        print("".join(f"      {line}\n" for line in text.splitlines()), end="", flush=True)


def _is_in_shadow_mode(root: Root) -> None:
    root.until("status", "tiresias-slurm", "status")
    state = json.loads(root.run("tiresias-slurm", "status", "--json"))
    expect(state["mode"] == "shadow", f"it is in {state['mode']} mode")


def _acts(root: Root) -> None:
    root.run("sed", "-i", 's/^#*mode = .*/mode = "enforce"/', CONFIG)
    root.run("systemctl", "restart", SERVICE)
    root.until("it acts", "sh", "-c", "tiresias-slurm status | grep enforce")


def _left_nothing(root: Root) -> None:
    code, active = root.ask("systemctl", "is-active", SERVICE)
    expect(code != 0 and active.strip() != "active", f"{SERVICE} is {active}")
    left = root.run("find", "/etc", "/usr/bin", "/usr/local", "/opt", "-iname", "*tiresias*")
    expect(not left.strip(), f"left behind:\n{left}")
    root.run("srun", "--gpus=1", "true")
    root.run("rm", "-rf", "/src/slurm-tiresias")


TRIALS = (has_a_running_slurm, follows_the_readme, follows_it_without_packages)
"""The order matters."""
