"""Machine-wide locks on names and ports."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.testbed.cluster.messages import ClusterError, say
from scripts.testbed.cluster.model import PATIENCE_S, Ports

LOWEST_PORT, HIGHEST_PORT = 20000, 32000
"""Below the range of ports that Linux uses for outgoing connections."""


def hold(name: str) -> socket.socket | None:
    """Lock a name that only one process of this machine can hold; return None if it is taken.

    An abstract Unix socket is a lock without a file, which the kernel frees when its last holder
    dies. Like loopback ports, it is visible in this network namespace only.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind(f"\0slurm-tiresias/{name}")
    except OSError as error:
        holder.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return holder


@contextlib.contextmanager
def alone_with(name: str, announcement: str) -> Iterator[None]:
    """Wait until no other `cluster` command works on the same thing, and lock it."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    deadline = time.monotonic() + 4 * PATIENCE_S
    holder = hold(digest)
    if holder is None:
        say(announcement)
    while holder is None:
        if time.monotonic() > deadline:
            raise ClusterError(f"gave up waiting: {announcement}")
        time.sleep(0.05)
        holder = hold(digest)
    with holder:
        yield


@dataclass(frozen=True)
class HeldPorts:
    ports: Ports
    holders: tuple[socket.socket, ...]


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # On all addresses, because some of Slurm's daemons always listen on all.
            probe.bind(("", port))
        except OSError:
            return False
    return True


def pick_ports(nodes: int) -> HeldPorts:
    """Pick free ports, and lock them against every other `up` on this machine."""
    held: dict[int, socket.socket] = {}
    candidates = list(range(LOWEST_PORT, HIGHEST_PORT))
    random.shuffle(candidates)
    for port in candidates:
        if len(held) == nodes + 3:
            break
        holder = hold(f"port/{port}")
        if holder is None:
            continue
        if port_is_free(port):
            held[port] = holder
        else:
            holder.close()
    if len(held) < nodes + 3:
        raise ClusterError(f"no {nodes + 3} free ports from {LOWEST_PORT} to {HIGHEST_PORT}")
    first, second, third, *others = sorted(held)
    return HeldPorts(Ports(first, second, third, tuple(others)), tuple(held.values()))
