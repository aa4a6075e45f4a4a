"""The command line of the bare-Debian test, and its steps from an empty root to the table."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.debian import machine, namespaces
from scripts.testbed.debian.root import base_root, cache_option, copy_of, host_suite
from scripts.tools.document import markdown

INCLUDED = ("ca-certificates", "git", "python3")
"""What the README presupposes on a minimal Debian: Python, and a way to get the checkout."""

HOSTS = f"127.0.0.1 localhost\n127.0.1.1 {namespaces.HOSTNAME}\n"
"""The file that Debian's installer writes and debootstrap does not."""

COMMANDS = ("./scripts/demo", "./scripts/test")
USERS = ("root", "ada")
HEADER = ("command", "user", "exit code", "s", "skipped")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command; ``skipped`` is pytest's count, "-" if no tests ran."""

    command: str
    user: str
    exit_code: int
    seconds: float
    skipped: str

    def row(self) -> list[str]:
        return [
            *(self.command, self.user, str(self.exit_code)),
            *(f"{self.seconds:.0f}", self.skipped),
        ]


@click.command()
@click.option("--suite", default=host_suite, help="The release of Debian. Default: this machine's.")
@cache_option("bare")
def bare(suite: str, cache: Path) -> None:
    """Run the README's first two commands on an unprepared Debian.

    The Debian is a minbase with python3, ca-certificates and git. A copy of it gets a clone of HEAD
    in root's home, which other users cannot access. scripts/demo and scripts/test run there as
    root; then, on the machine as these commands left it, as an ordinary user with a clone in their
    own home. Takes up to an hour, as root.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine.get_ready()
    try:
        results = try_all(suite, cache)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(str(error)) from error
    click.echo(markdown(HEADER, [result.row() for result in results]))
    sys.exit(any(result.exit_code != 0 for result in results))


def try_all(suite: str, cache: Path) -> list[Result]:
    cache.mkdir(parents=True, exist_ok=True)
    with machine.alone_with(cache / "lock", say):
        say(f"a bare Debian {suite}")
        base = base_root(suite, cache, INCLUDED)
        with tempfile.TemporaryDirectory(dir=cache, prefix="try-") as folder:
            root = copy_of(base, Path(folder) / "root")
            (root / "etc" / "hosts").write_text(HOSTS)
            return [try_one(root, user, command) for user in USERS for command in COMMANDS]


def try_one(root: Path, user: str, command: str) -> Result:
    """Run a command in the user's checkout, which is made before the first one."""
    home = Path("/root") if user == "root" else Path("/home") / user
    checkout = home / "slurm-tiresias"
    if not (root / checkout.relative_to("/")).exists():
        move_in(root, user, home, checkout)
    say(f"{command} as {user}")
    began_s = time.monotonic()
    counts: list[str] = []

    def show(line: str) -> None:
        print(line, flush=True)
        counts.append(skipped_in(line))

    whole = entering(root, as_user(user, home, (command,)), checkout)
    environment = {**machine.fetching_environment(), "HOME": str(home)}
    status = namespaces.follow(whole, environment, show)
    skipped = next(filter(None, reversed(counts)), "-")
    return Result(command, user, status, time.monotonic() - began_s, skipped)


def skipped_in(line: str) -> str:
    """Return the number of skipped tests from pytest's last line; "" for any other line."""
    if not re.search(r"\b\d+ (passed|failed|errors?)\b.* in \d", line):
        return ""
    counted = re.search(r"\b(\d+) skipped\b", line)
    return counted[1] if counted else "0"


def move_in(root: Path, user: str, home: Path, checkout: Path) -> None:
    """Create a home that no other user can enter, with a clone of HEAD in it."""
    if user != "root":
        made = ["useradd", "--create-home", "--shell", "/bin/bash", user]
        subprocess.run(entering(root, made), env=namespaces.ENVIRONMENT, check=True)
    inside = root / home.relative_to("/")
    inside.chmod(0o700)
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT)]
    subprocess.run([*clone, str(root / checkout.relative_to("/"))], check=True)
    owned = ["chown", "--recursive", f"{user}:", str(checkout)]
    subprocess.run(entering(root, owned), env=namespaces.ENVIRONMENT, check=True)


def as_user(user: str, home: Path, command: Sequence[str]) -> list[str]:
    if user == "root":
        return list(command)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *command]


def entering(root: Path, command: Sequence[str], folder: Path = Path("/")) -> list[str]:
    """Return a command that runs in the root, with this machine's network and package sources."""
    paths = machine.fetching_paths()
    return namespaces.entering(root, command, str(folder), paths, alone=False)


def say(text: str) -> None:
    print(f"bare: {text}", file=sys.stderr, flush=True)
