"""Options shared by several commands: the configuration file, and comma lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from slurm_tiresias.config import load
from slurm_tiresias.errors import NotRunningError, UsageError
from slurm_tiresias.settings import Config
from slurm_tiresias.status.published import STOPPED, PublishedState
from slurm_tiresias.text import duration, printable, shorten

PROGRAM = "tiresias-slurm"
DEFAULT_CONFIG = "/etc/slurm-tiresias/tiresias.toml"
CONFIG_VARIABLE = "TIRESIAS_CONFIG"

_CONFIG_KEY = "slurm_tiresias.config"
_NAMED_CONFIG_KEY = "slurm_tiresias.named_config"
_JOB_ID = re.compile(r"([0-9]{1,10})([_+][0-9]{1,10})?", re.ASCII)
_STEP = re.compile(r"([0-9]+([_+][0-9]+)?)\.\w+", re.ASCII)
_LARGEST_JOB_ID = 2**32 - 1
_MOST_REPEATED = 40
"""Most characters of a wrong value that an error message repeats."""

P = ParamSpec("P")
R = TypeVar("R")
Command = Callable[..., Any]


def root_config_option(command: Command) -> Command:
    """Add ``--config`` before the subcommand, with the environment variable and the default."""
    return click.option(
        "--config",
        type=click.Path(readable=False),
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        default=DEFAULT_CONFIG,
        show_envvar=True,
        show_default=True,
        expose_value=False,
        callback=remember_config,
        is_eager=True,
        help="The configuration file. May also be given after the command.",
    )(command)


def config_option(command: Command) -> Command:
    """Add ``--config`` after the subcommand; it takes precedence over the one before."""
    return click.option(
        "--config",
        type=click.Path(readable=False),
        metavar="FILE",
        expose_value=False,
        callback=remember_config,
        help="The configuration file.",
    )(command)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def remember_config(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Store the value of ``--config``, as the callback of all of them: the last one given wins."""
    if value is None:
        return
    context.meta[_CONFIG_KEY] = value
    if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        context.meta[_NAMED_CONFIG_KEY] = value


def config_path() -> Path:
    """Return the configuration file of this command line."""
    return Path(click.get_current_context().meta[_CONFIG_KEY])


def last_config(context: click.Context) -> str | None:
    """Return the configuration file in a command line that is still being typed, if it has one."""
    named: str | None = context.meta.get(_CONFIG_KEY)
    return named


def named_config_path(context: click.Context) -> Path | None:
    """Return the configuration file if it was given as an option, not by a variable or default."""
    named = context.meta.get(_NAMED_CONFIG_KEY)
    return None if named is None else Path(named)


def takes_config(callback: Callable[Concatenate[Config, P], R]) -> Callable[P, R]:
    """Add ``--config`` to a command, and pass it the loaded configuration as first argument."""

    @config_option
    @wraps(callback)
    def with_config(*arguments: P.args, **options: P.kwargs) -> R:
        return callback(load(config_path()), *arguments, **options)

    return with_config


def words(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Parse the comma list of an option, as its callback. A list without words, such as an empty
    shell variable, is refused, because it would select everything."""
    found = tuple(filter(None, (word.strip() for word in (value or "").split(","))))
    if value is not None and not found:
        given = "/".join(parameter.opts)
        raise UsageError(f"{given} names no value", "Name a value, or leave the option out")
    return found


def checked_words(
    check: Callable[[tuple[str, ...]], R],
) -> Callable[[click.Context, click.Parameter, str | None], R]:
    """Return a callback for a comma list that is checked and converted before the configuration is
    read, so that a wrong word is reported on a machine without one, too."""
    return lambda context, parameter, value: check(words(context, parameter, value))


def job_ids(found: tuple[str, ...]) -> tuple[str, ...]:
    """Check all of these job ids."""
    return tuple(map(checked_job_id, found))


def job_id_argument(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Check the job id that is a command's argument, as its callback."""
    return checked_job_id(value)


one_job_argument = click.argument(
    "job_id",
    metavar="[JOBID]",
    required=False,
    callback=lambda _context, _parameter, value: value and checked_job_id(value),
)
"""The argument of commands that are about all jobs or about one."""


def checked_job_id(job_id: str) -> str:
    """Check a job id as Slurm writes it: 12, 12_3 (array task), 12+1 (het job component)."""
    found = _JOB_ID.fullmatch(job_id)
    if found and 0 < int(found[1]) <= _LARGEST_JOB_ID:
        return job_id
    said = repr(shorten(printable(job_id), _MOST_REPEATED))
    if step := _STEP.fullmatch(job_id):
        raise UsageError(f"{said} is a step of a job", f"Name the job: {step[1][:21]}")
    raise UsageError(f"{said} is not a job id", "Write a number, or 12_3 for an array's task")


def is_named_by(job_id: str, given: str) -> bool:
    """Whether the given id names this job: ``12`` also names its tasks, such as ``12_3``."""
    return job_id == given or job_id.startswith((f"{given}_", f"{given}+"))


def complain_if_not_current(state: PublishedState, now_s: float) -> None:
    """Raise ``NotRunningError`` if the state is from a stopped or failing controller.

    Call it after the state has been shown.
    """
    age = duration(now_s - state.at_s)
    if state.mode == STOPPED:
        raise NotRunningError(
            f"The controller was stopped; its last cycle was {age} ago",
            f"Start it with: systemctl start {PROGRAM}, or without systemd: {PROGRAM} controller",
        )
    if not state.is_stale(now_s):
        return
    if state.failures:
        raise NotRunningError(
            f"The controller has had no good cycle for {age}, and the state shown is that old: "
            f"{printable(state.error)}",
            "It keeps trying; remove the cause",
        )
    raise NotRunningError(
        f"The controller has published nothing for {age}, and the state shown is that old",
        f"Check whether it runs: see its log, or start it with: {PROGRAM} controller",
    )
