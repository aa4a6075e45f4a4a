"""The command ``tiresias-slurm``: its subcommands, and how every one of them ends.

Whatever goes wrong ends in one line on standard error and an exit code of its own, never in a
traceback: 1 error, 2 usage, 3 no controller or a stale one, and so on (``errors.py``).
"""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from slurm_tiresias import __version__
from slurm_tiresias.cli.begin import INTERRUPTED
from slurm_tiresias.cli.config import config
from slurm_tiresias.cli.control import nudge, pause, release, resume
from slurm_tiresias.cli.controller import controller
from slurm_tiresias.cli.explain import explain
from slurm_tiresias.cli.ledger import ledger
from slurm_tiresias.cli.metrics import metrics
from slurm_tiresias.cli.options import PROGRAM, root_config_option
from slurm_tiresias.cli.status import status
from slurm_tiresias.cli.text import printable
from slurm_tiresias.errors import TiresiasError, UsageError

NOBODY_READS = 141
"""Exit code where the reader of the output has left, as a shell gives it: 128 + SIGPIPE."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_DID_YOU_MEAN = re.compile(r"Did you mean ([^?]*)\?")


LATE = {
    "doctor": "slurm_tiresias.cli.doctor",
    "init": "slurm_tiresias.cli.init",
    "history": "slurm_tiresias.cli.history",
    "profile": "slurm_tiresias.cli.profile",
    "report": "slurm_tiresias.cli.report",
    "shadow": "slurm_tiresias.cli.shadow",
    "simulate": "slurm_tiresias.cli.simulate",
    "tune": "slurm_tiresias.cli.tune",
}
"""Commands whose modules are loaded only when they are called: others need not wait for NumPy."""


class Program(click.Group):
    """A group of commands that end as this module promises."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *LATE])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in LATE:
            return super().get_command(context, name)
        found: click.Command = getattr(import_module(LATE[name]), name)
        return found

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands' names; those of ``LATE`` alone, or a press of TAB would load them all."""
        names = [name for name in self.list_commands(context) if name.startswith(incomplete)]
        known = {name: command for name in names if (command := self.commands.get(name))}
        described = {name: command.get_short_help_str() for name, command in known.items()}
        items = [CompletionItem(name, help=described.get(name)) for name in names]
        return [*items, *click.Command.shell_complete(self, context, incomplete)]

    def main(self, *arguments: Any, **options: Any) -> Any:
        sys.exit(self._exit_code(*arguments, **{**options, "standalone_mode": False}))

    def _exit_code(self, *arguments: Any, **options: Any) -> int:
        try:
            code = super().main(*arguments, **options)
        except TiresiasError as error:
            return _fail(error)
        except click.UsageError as error:
            return _fail(_usage_error(error))
        except click.Abort:
            return INTERRUPTED
        except OSError as error:
            _abandon_broken_stdout()
            return _fail(_system_error(error))
        return code if isinstance(code, int) else 0

    def invoke(self, context: click.Context) -> Any:
        try:
            result = super().invoke(context)
            _flush_stdout()
        except BrokenPipeError:
            _abandon_broken_stdout()
            context.exit(NOBODY_READS)
        return result


def _usage_error(error: click.UsageError) -> UsageError:
    what = _DID_YOU_MEAN.sub(r"Perhaps \1 was meant", " ".join(error.format_message().split()))
    command = error.ctx.command_path if error.ctx else PROGRAM
    return UsageError(what.rstrip("?"), f"See: {command} --help")


def _system_error(error: OSError) -> TiresiasError:
    if error.errno in NO_ROOM and not error.filename:
        return TiresiasError(
            f"The output could not all be written: {error.strerror}",
            "Make room, or write it elsewhere; what the command does beside that may be done",
        )
    about = f" ({error.filename})" if error.filename else ""
    return TiresiasError(
        f"The system refused: {error.strerror or error}{about}", "Mend that and try again"
    )


def _fail(error: TiresiasError) -> int:
    click.echo(f"{PROGRAM}: error: {printable(str(error))}", err=True)
    return error.exit_code


def _abandon_broken_stdout() -> None:
    """Let what cannot be written vanish, or Python complains about it once more at its end."""
    try:
        _flush_stdout()
    except OSError:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _flush_stdout() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


@click.group(
    cls=Program,
    name=PROGRAM,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name=PROGRAM)
@root_config_option
def cli() -> None:
    """Tiresias on stock Slurm: short jobs first, without knowing how long any of them runs.

    \b
    Exit codes: 0 ok, 1 error, 2 usage, 3 controller not running or stale,
    4 configuration, 5 slurmctld unreachable, 6 permission denied,
    7 unreadable answer of Slurm, 8 ledger, 9 already running,
    10 a folder of a node (profile sample), 11 a damaged ledger,
    12 and 13 what doctor found: a warning, an error,
    14 pyslurm cannot be used, 130 interrupted, 141 nobody reads the output.
    """


_COMMANDS = (controller, status, explain, pause, resume, release, nudge, config, ledger, metrics)
for command in _COMMANDS:
    cli.add_command(command)


def _write_nowhere_what_is_closed() -> None:
    """A standard stream that the caller closed is None, which click before 8.1.4 stumbles over."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def main() -> None:
    """Run what the command line says; ``begin`` is the entry point."""
    _write_nowhere_what_is_closed()
    cli(prog_name=PROGRAM)
