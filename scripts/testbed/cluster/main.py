"""The command line of scripts/cluster."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scripts.testbed.cluster.commands import down, env, kill, start_again, status, up
from scripts.testbed.cluster.configuration import OWN_FILES, key_of
from scripts.testbed.cluster.messages import ClusterError, StoppedBySignalError, UsageError, say
from scripts.testbed.cluster.model import Shape, place_named
from scripts.testbed.cluster.packages import ensure_packages


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        name = self.prog.split()[-1]
        command = "" if name == "cluster" else f" {name}"
        raise UsageError(f"{message}. See `{sys.argv[0]}{command} --help`.")


def parser() -> argparse.ArgumentParser:
    whole = OneLineParser(prog="cluster", description="A real Slurm cluster on one machine.")
    commands = whole.add_subparsers(
        dest="command", required=True, metavar="up|down|kill|start|status|env|install"
    )
    common = OneLineParser(add_help=False)
    common.add_argument(
        "--dir", help=f"the cluster's folder (default: /tmp/slurm-tiresias-cluster-{os.getuid()})"
    )
    add_up(commands.add_parser("up", parents=[common], help="start a cluster"))
    commands.add_parser("down", parents=[common], help="stop it and remove its folder")
    kills = commands.add_parser("kill", parents=[common], help="send a daemon a signal")
    kills.add_argument("--signal", type=signal_named, default=signal.SIGKILL, help="default: KILL")
    starts = commands.add_parser("start", parents=[common], help="start a daemon that was killed")
    for command in (kills, starts):
        command.add_argument(
            "daemons",
            nargs="+",
            metavar="DAEMON",
            help="as `status` lists them: slurmctld, slurmd.n1",
        )
    shows = commands.add_parser("status", parents=[common], help="say what runs")
    shows.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("env", parents=[common], help="print exports for eval")
    installs = commands.add_parser("install", help="install Debian's Slurm and other packages")
    installs.add_argument("packages", nargs="*", metavar="PACKAGE", help="of Debian, besides Slurm")
    return whole


def add_up(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--nodes", type=whole_number(2000), default=4, help="default: 4")
    add("--gpus", type=whole_number(128), default=4, help="GPUs of each node (default: 4)")
    add("--gpu-type", default="", metavar="TYPE", help="a100, or n1=a100,n2=v100 (default: none)")
    add("--cpus", type=whole_number(4096), default=16, help="of each node (default: 16)")
    add("--memory-mb", type=whole_number(10**8), default=8000, help="of each node (default: 8000)")
    add(
        "--partition",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="each holds all nodes, the first is the default (default: gpu)",
    )
    add(
        "--slurm-conf-line",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a line of slurm.conf, in place of the script's own; may be repeated",
    )
    add(
        "--conf-file",
        action="append",
        default=[],
        metavar="FILE",
        help="put a copy beside slurm.conf, e.g. plugstack.conf; may be repeated",
    )
    add(
        "--gres-conf-line",
        action="append",
        default=[],
        metavar="LINE",
        help="add a line to gres.conf, e.g. for shards of GPUs; may be repeated",
    )
    add("--no-accounting", action="store_true", help="without MariaDB and slurmdbd")
    add("--backup", action="store_true", help="with a backup slurmctld (only root can)")
    add(
        "--slurm-user",
        default="",
        metavar="USER",
        help="SlurmUser, the user of slurmctld and slurmdbd; slurmd stays root (only root can)",
    )


def signal_named(text: str) -> signal.Signals:
    try:
        return signal.Signals[f"SIG{text.removeprefix('SIG')}"]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a signal") from None


def whole_number(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {most}")
        return int(text)

    return number


def shape_from(options: argparse.Namespace) -> Shape:
    partitions = tuple(dict.fromkeys(options.partition or ["gpu"]))
    if options.backup and os.geteuid() != 0:
        raise UsageError("--backup gives each slurmctld a host name of its own. Run it as root.")
    check_slurm_user(options.slurm_user)
    for name in partitions:
        check_name(name, "--partition")
    for line in (*options.slurm_conf_line, *options.gres_conf_line):
        check_conf_line(line)
    for file in options.conf_file:
        check_conf_file(Path(file))
    return Shape(
        nodes=options.nodes,
        gpus=options.gpus,
        gpu_types=gpu_types(options.gpu_type, options.nodes),
        cpus=options.cpus,
        memory_mb=options.memory_mb,
        partitions=partitions,
        slurm_conf_lines=tuple(options.slurm_conf_line),
        accounting=not options.no_accounting,
        conf_files=tuple(str(Path(file).absolute()) for file in options.conf_file),
        gres_conf_lines=tuple(options.gres_conf_line),
        backup=options.backup,
        slurm_user=options.slurm_user,
    )


def gpu_types(text: str, nodes: int) -> tuple[str, ...]:
    """Parse one type for all nodes, or `n1=a100,n2=v100`; other nodes have untyped GPUs."""
    if "=" not in text:
        if text:
            check_name(text, "--gpu-type")
        return (text,) * nodes
    names = [f"n{number}" for number in range(1, nodes + 1)]
    by_node = dict.fromkeys(names, "")
    for part in text.split(","):
        node, _, kind = part.partition("=")
        if node not in by_node:
            raise UsageError(f"--gpu-type: no node {node!r}. Nodes are {names[0]} to {names[-1]}.")
        check_name(kind, "--gpu-type")
        by_node[node] = kind
    return tuple(by_node.values())


def check_name(name: str, option: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UsageError(f"{option}: {name!r} is not a valid name. Use letters, digits, _ and -.")


def check_slurm_user(name: str) -> None:
    if not name:
        return
    if os.geteuid() != 0:
        raise UsageError("--slurm-user: only root can become another user. Run it as root.")
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise UsageError(
            f"--slurm-user: no user {name!r}. Name one that `getent passwd` lists."
        ) from None


def check_conf_line(line: str) -> None:
    if not re.fullmatch(r"[A-Za-z]\w*=[^\n]*", line):
        raise UsageError(f"--slurm-conf-line: {line!r} is not a line of slurm.conf. Use Key=Value.")
    if key_of(line) == "clustername":
        raise UsageError(
            "--slurm-conf-line: `down` recognizes the jobs by ClusterName. Leave it out."
        )


def check_conf_file(file: Path) -> None:
    if not file.is_file():
        raise UsageError(f"--conf-file: {file} is not a file. Name an existing one.")
    if file.name in OWN_FILES:
        raise UsageError(
            f"--conf-file: {file.name} is written by this script. Use --slurm-conf-line."
        )


def dispatch(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.command == "install":
        ensure_packages(accounting=True, others=options.packages)
        return 0
    place = place_named(options.dir)
    commands: dict[str, Callable[[], int]] = {
        "up": lambda: up(place, shape_from(options)),
        "down": lambda: down(place),
        "kill": lambda: kill(place, options.daemons, options.signal),
        "start": lambda: start_again(place, options.daemons),
        "status": lambda: status(place, options.json),
        "env": lambda: env(place),
    }
    return commands[options.command]()


def interrupt(number: int, _frame: FrameType | None) -> None:
    # Ignore further signals during the cleanup.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise StoppedBySignalError(number)


def main() -> int:
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        return dispatch(sys.argv[1:])
    except UsageError as error:
        say(f"error: {error}")
        return 2
    except (ClusterError, OSError) as error:
        say(f"error: {error}")
        return 1
    except StoppedBySignalError as interruption:
        say(f"stopped by {interruption}")
        return interruption.status
