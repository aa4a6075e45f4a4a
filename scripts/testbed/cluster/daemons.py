"""Start a cluster's daemons, each once those that it depends on answer."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from scripts.testbed.cluster.configuration import CONTROLLERS
from scripts.testbed.cluster.locks import HeldPorts
from scripts.testbed.cluster.messages import ClusterError, UsageError, last_words
from scripts.testbed.cluster.model import PATIENCE_S, Place, Record, Started, write_record
from scripts.testbed.cluster.packages import program
from scripts.testbed.cluster.processes import process


@dataclass
class Start:
    """The progress of one `up`: what it has started so far, and its deadline."""

    place: Place
    record: Record
    deadline: float
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def daemon(self, name: str, command: Sequence[str], keep: Sequence[int] = ()) -> None:
        """Start a daemon in foreground mode and in its own session, and record it at once."""
        with self.place[f"log/{name}.out"].open("ab") as output:
            child = subprocess.Popen(
                [program(command[0]) or command[0], *command[1:]],
                env=self.place.environment(),
                cwd=self.place["run"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=keep,
            )
        self.children[name] = child
        found = process(child.pid)
        if found is not None:
            started = Started(name, child.pid, found.start_time)
            others = (known for known in self.record.processes if known.name != name)
            known = (*others, started)
            self.record = replace(self.record, processes=known)
            write_record(self.place, self.record)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a client command of the cluster."""
        try:
            return subprocess.run(
                [program(command[0]) or command[0], *command[1:]],
                env=self.place.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=max(0.1, self.deadline - time.monotonic()),
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"`{' '.join(command)}` did not answer in time") from error

    def wait_for(self, what: str, culprit: str, condition: Callable[[], bool]) -> None:
        pause = 0.01
        while not condition():
            self.expect_all_alive()
            if time.monotonic() > self.deadline:
                raise ClusterError(
                    "\n  ".join([f"{what}: not within {PATIENCE_S:g} s", *self.why(culprit)])
                )
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        self.expect_all_alive()

    def expect_all_alive(self) -> None:
        for name, child in self.children.items():
            status = child.poll()
            if status is not None:
                how = f"signal {-status}" if status < 0 else f"status {status}"
                raise ClusterError("\n  ".join([f"{name} ended with {how}", *self.why(name)]))

    def why(self, name: str) -> list[str]:
        """Return the lines of a daemon's logs that show what went wrong."""
        lines: list[str] = []
        for suffix in ("out", "log"):
            with contextlib.suppress(OSError):
                text = self.place[f"log/{name}.{suffix}"].read_text(errors="replace")
                lines += text.splitlines()
        return last_words(lines, pattern=r"\b(error|fatal)\b")


def listens(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((address, port)) == 0


def daemon_command(start: Start, name: str) -> list[str]:
    """Return the command of the daemon with this name; raise ``UsageError`` if there is none."""
    place, shape = start.place, start.record.shape
    conf = str(place.slurm_conf)
    commands = {"munged": munge_command(place), "slurmctld": ["slurmctld", "-D", "-f", conf]}
    for node in shape.node_names():
        commands[f"slurmd.{node}"] = ["slurmd", "-D", "-N", node, "-f", conf]
    if shape.accounting:
        commands["database"] = ["mariadbd", f"--defaults-file={place['etc/database.cnf']}"]
        commands["slurmdbd"] = ["slurmdbd", "-D"]
    if shape.backup:
        slurmctld = program("slurmctld") or "slurmctld"
        for controller, (host, _) in CONTROLLERS.items():
            # slurmctld determines from the host name which one it is, and where to listen.
            own = f"mount --bind {place['etc/hosts']} /etc/hosts && hostname {host}"
            own_conf = conf if controller == "slurmctld" else str(place["etc/backup.conf"])
            as_host = ["sh", "-c", f'{own} && exec {slurmctld} -D -f "$0"', own_conf]
            commands[controller] = ["unshare", "--uts", "--mount", *as_host]
    if name not in commands:
        raise UsageError(f"no daemon {name!r}. There are: {', '.join(sorted(commands))}.")
    return commands[name]


def start_everything(start: Start, held: HeldPorts) -> None:
    start_munge(start, held)
    if start.record.shape.accounting:
        start_database(start)
        start_slurmdbd(start)
    start_slurmctld(start)
    start_nodes(start)


def start_munge(start: Start, held: HeldPorts) -> None:
    command = daemon_command(start, "munged")
    # munged inherits the locks on the ports, so that while it lives no other cluster takes a port
    # whose daemon is being restarted.
    start.daemon("munged", command, keep=[holder.fileno() for holder in held.holders])
    start.wait_for("munge", "munged", lambda: munge_answers(start.place))


def munge_command(place: Place) -> list[str]:
    command = ["munged", "--foreground", "--force", "--origin=127.0.0.1", "--num-threads=4"]
    command += [f"--key-file={place['etc/munge.key']}", f"--socket={place.munge_socket}"]
    command += [f"--pid-file={place['run/munged.pid']}", f"--log-file={place['log/munged.log']}"]
    return [*command, f"--seed-file={place['run/munged.seed']}"]


def munge_answers(place: Place) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(place.munge_socket)) == 0


def start_database(start: Start) -> None:
    place, port = start.place, start.record.ports.database
    defaults = f"--defaults-file={place['etc/database.cnf']}"
    made = start.run(
        "mariadb-install-db",
        defaults,
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
    )
    if made.returncode != 0:
        said = [*(made.stdout + made.stderr).splitlines(), *start.why("database")]
        reason = last_words(said, pattern=r"\b(error|fatal)\b")
        raise ClusterError("\n  ".join(["mariadb-install-db failed", *reason]))
    start.daemon("database", daemon_command(start, "database"))
    start.wait_for("database", "database", lambda: listens(port))


def start_slurmdbd(start: Start) -> None:
    start.daemon("slurmdbd", daemon_command(start, "slurmdbd"))
    start.wait_for("slurmdbd", "slurmdbd", lambda: listens(start.record.ports.slurmdbd))


def start_slurmctld(start: Start) -> None:
    port = start.record.ports.slurmctld
    start.daemon("slurmctld", daemon_command(start, "slurmctld"))
    start.wait_for("slurmctld", "slurmctld", lambda: listens(port))
    if start.record.shape.backup:
        start.daemon("backup", daemon_command(start, "backup"))
        _, address = CONTROLLERS["backup"]
        start.wait_for("backup", "backup", lambda: listens(port, address))


def start_nodes(start: Start) -> None:
    for name in start.record.shape.node_names():
        start.daemon(f"slurmd.{name}", daemon_command(start, f"slurmd.{name}"))
    start.wait_for("scontrol ping", "slurmctld", lambda: controller_is_up(start))
    if start.record.shape.accounting:
        start.wait_for("registration with slurmdbd", "slurmctld", lambda: is_registered(start))
    start.wait_for("all nodes idle", "slurmctld", lambda: all_idle(start))


def controller_is_up(start: Start) -> bool:
    return "UP" in start.run("scontrol", "ping").stdout


def is_registered(start: Start) -> bool:
    answer = start.run("sacctmgr", "-nP", "show", "cluster", "format=controlport")
    return answer.stdout.strip() == str(start.record.ports.slurmctld)


def all_idle(start: Start) -> bool:
    answer = start.run("sinfo", "-hN", "-o", "%N|%t|%E")
    states: dict[str, str] = {}
    for line in answer.stdout.splitlines():
        name, state, reason = line.split("|", 2)
        if state in ("drain", "inval"):
            # Caused only by a wrong configuration line, which waiting does not fix.
            raise ClusterError(f"node {name} is {state}: {reason}")
        states[name] = state
    return all(states.get(name) == "idle" for name in start.record.shape.node_names())
