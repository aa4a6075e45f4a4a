"""A private Docker engine: its images are kept, everything else is removed when it stops.

It runs in its own namespaces. Its mounts, its containers and, if it is cut off from the network,
its networks and its kernel settings end with its first process, even if that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException

from scripts.testbed.debian.namespaces import NAMESPACES

GROUP = "slurm-tiresias-containers"
"""The control group above all containers; it also finds those of a killed run."""

PATIENCE_S = 60.0
STOPPING_PATIENCE_S = 30.0

_ENTER = """
set -e
mount -t proc proc /proc
ip link set lo up
exec "$@"
"""


class EngineError(Exception):
    """The engine did not start; the text has its last output."""


@dataclass(frozen=True, slots=True)
class Engine:
    client: docker.DockerClient
    address: str
    """Address in the format of DOCKER_HOST."""


@contextmanager
def running(images: Path, cut_off: bool) -> Iterator[Engine]:
    """Start an engine that keeps its images in a folder, and stop it at the end.

    With ``cut_off`` it has a network of its own, with bridges and name resolution for its
    containers, and no connection beyond. Without, containers can use only this machine's network or
    none.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-tiresias-docker-") as name:
        folder = Path(name)
        # Overrides the settings of an engine that may be installed here.
        (folder / "daemon.json").write_text("{}\n")
        with (folder / "log").open("wb") as log:
            outer = subprocess.Popen(
                _command(folder, images, cut_off),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            client = _client(folder, outer)
            clear(client)
            try:
                yield Engine(client, _address(folder))
            finally:
                clear(client)
                client.close()
        finally:
            _end(outer)
            _remove_groups()


def _address(folder: Path) -> str:
    return f"unix://{folder}/socket"


def _command(folder: Path, images: Path, cut_off: bool) -> Sequence[str]:
    own_network = ["--net"] if cut_off else []
    # Leave this machine's network configuration as it is.
    hands_off = [] if cut_off else ["--iptables=false", "--ip-forward=false"]
    return [
        *("setpriv", "--pdeathsig=KILL", "unshare", *NAMESPACES, *own_network),
        *("sh", "-c", _ENTER, "sh", "dockerd", "--log-level=warn", "--bridge=none"),
        *("--ip6tables=false", *hands_off, f"--config-file={folder}/daemon.json"),
        # Not through this machine's systemd, whose groups would outlive the engine.
        *("--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{GROUP}"),
        *(f"--data-root={images}", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"),
        f"--host={_address(folder)}",
    ]


def _client(folder: Path, outer: subprocess.Popen[bytes]) -> docker.DockerClient:
    """Return a client once the engine answers."""
    deadline = time.monotonic() + PATIENCE_S
    while outer.poll() is None and time.monotonic() < deadline:
        with suppress(DockerException):
            client = docker.DockerClient(base_url=_address(folder), timeout=600)
            client.ping()
            return client
        time.sleep(0.1)
    last_words = (folder / "log").read_text(errors="replace").strip().splitlines()[-8:]
    raise EngineError("\n  ".join(["dockerd does not run here:", *last_words]))


def clear(client: docker.DockerClient) -> None:
    """Remove everything but the images, including what an interrupted run has left."""
    for container in client.containers.list(all=True):
        container.remove(force=True, v=True)
    for volume in client.volumes.list():
        volume.remove(force=True)
    client.networks.prune()
    client.images.prune()


def _end(outer: subprocess.Popen[bytes]) -> None:
    """Let dockerd exit cleanly, then end whatever is left in its namespaces."""
    for child in _children(outer.pid):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        outer.wait(STOPPING_PATIENCE_S)
    outer.kill()
    outer.wait()


def _remove_groups() -> None:
    """Remove the control groups, which are folders without processes by now."""
    tops = Path("/sys/fs/cgroup")
    for top in (tops / GROUP, *tops.glob(f"*/{GROUP}")):
        for folder in (*sorted(top.rglob("*/"), reverse=True), top):
            with suppress(OSError):
                folder.rmdir()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
