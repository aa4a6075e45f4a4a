"""The command ``tiresias-slurm``: its subcommands, and its error handling.

Every failure ends with one line on standard error and a specific exit code, never with a traceback:
1 error, 2 usage, 3 no controller or a stale one, and so on (``errors.py``).
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
from slurm_tiresias.cli.options import PROGRAM, root_config_option
from slurm_tiresias.errors import INTERRUPTED, TiresiasError, UsageError
from slurm_tiresias.text import printable

OUTPUT_CLOSED = 141
"""Exit code if the reader of the output has closed it, as shells report it: 128 + SIGPIPE."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_DID_YOU_MEAN = re.compile(r"Did you mean ([^?]*)\?")


COMMANDS = {
    "boost": ("control", "Let one job go before all others, and not be preempted, until a time."),
    "config": ("config", "Check and show the configuration."),
    "controller": ("controller", "Run the controller."),
    "doctor": (
        "doctor",
        "Check this Slurm: what is right, what is wrong, why it matters, and what to change.",
    ),
    "drill": ("drill", "Preempt a job of your own on purpose, and report what that does to it."),
    "events": (
        "events",
        "Show the latest events of all jobs, or of one: preemptions, requeues, failures, orders.",
    ),
    "explain": ("explain", "Say why a job waits, runs or was preempted."),
    "hand-back": (
        "control",
        "Hand every managed job back to Slurm, and pause; or hand one job back.",
    ),
    "history": (
        "history",
        "Show the whole history of a job: each run, what ended it, and the events between runs.",
    ),
    "init": (
        "init",
        "Write a configuration for this cluster into FOLDER, and print how to install it.",
    ),
    "ledger": ("ledger", "Repair the controller's database of jobs, or make it smaller."),
    "metrics": ("metrics", "Print the controller's current metrics in Prometheus's format."),
    "nodes": (
        "nodes",
        "Show what the runs of the last day say of each node: failures, speed, idle GPUs, "
        "suspicion.",
    ),
    "nudge": ("control", "Run a cycle now, without waiting for the interval."),
    "pause": ("control", "Stop acting on Slurm, but keep deciding and publishing."),
    "profile": ("profile", "Show and manage profiles of models: how skewed each model is."),
    "report": (
        "report",
        "Report what the controller did in a period, by job size, user and account.",
    ),
    "resume": (
        "control",
        "Act on Slurm again, after `pause` or `hand-back`; or manage one job again.",
    ),
    "shadow": ("shadow", "What the controller would have done in shadow mode."),
    "simulate": (
        "simulate",
        "Replay a trace or a workload under one or several policies, and compare them.",
    ),
    "status": ("status", "Show the controller, the tiers and the jobs."),
    "tune": ("tune", "Recommend thresholds for a history of jobs, with the evidence."),
    "when": ("when", "Say when a job will start, and what would make that sooner."),
}
"""Each command's module in this package, and the first sentence of its help: so ``--help`` and
shell completion need not load the modules, which would take half a second."""

EXIT_CODES = """\b
Exit codes: 0 ok, 1 error, 2 usage, 3 controller not running or stale,
4 configuration, 5 slurmctld unreachable, 6 permission denied,
7 unreadable answer of Slurm, 8 ledger, 9 already running,
10 a folder of a node (profile sample), 11 a damaged ledger,
12 and 13 what doctor found: a warning, an error,
14 pyslurm cannot be used, 15 a request too large or too frequent,
16 and 17 what drill found: a trial failed, something could not be tested,
130 interrupted, 141 output closed by its reader.
"""

FOR_USERS = ("status", "explain", "when", "history", "events", "drill", "profile")
TO_PLAN = ("simulate", "tune", "shadow", "report")


class Program(click.Group):
    """A command group with the error handling of this module.

    Its own ``commands`` have only names and help; a command's module is loaded when it is called.
    """

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _ = COMMANDS[name]
        defines = import_module(f"slurm_tiresias.cli.{module}")
        found: click.Command = getattr(defines, name.replace("-", "_"))
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        others = [name for name in self.commands if name not in (*FOR_USERS, *TO_PLAN)]
        groups = {"For users": FOR_USERS, "To operate it": others, "To plan": TO_PLAN}
        for title, names in groups.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(limit)) for name in names]
                )

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        items = [
            CompletionItem(name, help=each.get_short_help_str())
            for name, each in self.commands.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, context, incomplete)]

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            code = super().main(*arguments, **{**options, "standalone_mode": False})
        except TiresiasError as error:
            code = _fail(error)
        except click.UsageError as error:
            code = _fail(_usage_error(error))
        except click.Abort:
            code = INTERRUPTED
        except OSError as error:
            _abandon_broken_stdout()
            code = _fail(_system_error(error))
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, context: click.Context) -> Any:
        try:
            result = super().invoke(context)
            _flush_stdout()
        except BrokenPipeError:
            _abandon_broken_stdout()
            context.exit(OUTPUT_CLOSED)
        except click.UsageError as error:
            # click does not say which command an option without its argument belongs to.
            if error.ctx is None and context.invoked_subcommand:
                name = context.invoked_subcommand
                error.ctx = click.Context(self, context, name)
            raise
        return result


def _usage_error(error: click.UsageError) -> UsageError:
    what = _DID_YOU_MEAN.sub(r"Perhaps \1 was meant", " ".join(error.format_message().split()))
    command = error.ctx.command_path if error.ctx else PROGRAM
    return UsageError(what.rstrip("?"), f"See: {command} --help")


def _system_error(error: OSError) -> TiresiasError:
    if error.errno in NO_ROOM and not error.filename:
        return TiresiasError(
            f"The output could not all be written: {error.strerror}",
            "Free some space, or write elsewhere; other effects of the command may be done",
        )
    about = f" ({error.filename})" if error.filename else ""
    return TiresiasError(
        f"The system refused: {error.strerror or error}{about}", "Solve the problem and try again"
    )


def _fail(error: TiresiasError) -> int:
    click.echo(f"{PROGRAM}: error: {printable(str(error))}", err=True)
    return error.exit_code


def _abandon_broken_stdout() -> None:
    """Discard output that cannot be written; Python would report it once more at exit."""
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
    commands=[click.Command(name, help=text) for name, (_, text) in COMMANDS.items()],
    no_args_is_help=False,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name=PROGRAM)
@root_config_option
def cli() -> None:
    """Tiresias on stock Slurm: short jobs first, without knowing how long any of them runs."""


def main() -> None:
    """Run the command line; the entry point is ``begin``."""
    # If the caller closed a standard stream it is None, which click before 8.1.4 cannot handle.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    cli(prog_name=PROGRAM)
