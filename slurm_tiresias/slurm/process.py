"""Starting Slurm's commands: never a shell, always a known environment, always a time limit."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.errors import (
    SlurmAnswerError,
    SlurmPermissionError,
    SlurmUnreachableError,
    TiresiasError,
)

KNOWN_ENVIRONMENT = {
    "LC_ALL": "C",
    "TZ": "UTC0",
    "SLURM_TIME_FORMAT": "%s",
    "SLURM_BITSTR_LEN": "0",
}
"""Plain English, times in seconds since the epoch, array task lists in full."""

_CHANGES_ANSWERS = re.compile(
    r"(?:SQUEUE|SINFO|SACCT|SCONTROL|SCANCEL)_.*|SLURM_CLUSTERS|SLURM_DEBUG.*|LC_.*|LANG|LANGUAGE"
)
"""What an administrator may have set for their own use of the commands."""

_UNREACHABLE = re.compile(
    r"Unable to contact|configuration source|Connection refused|timed out"
    r"|Zero Bytes were transmitted|standby mode|authentication error"
    r"|problem talking to the database|Unable to connect"
    r"|Unexpected message received",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"access/permission denied|access denied|permission denied|invalid user id", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said and how it ended."""

    stdout: str
    stderr: str
    status: int


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what changes answers, then ``extra``, then what we set."""
    kept = {key: value for key, value in os.environ.items() if not _CHANGES_ANSWERS.fullmatch(key)}
    return kept | dict(extra) | KNOWN_ENVIRONMENT


def run(
    arguments: Sequence[str], *, stdin: str, timeout_s: float, environment: Mapping[str, str]
) -> Answer:
    """Run one command to its end; ``SlurmUnreachableError`` if it is missing or takes too long.

    It gets a session of its own: a Ctrl-C meant for this program does not cut it off half-way.
    """
    try:
        ended = subprocess.run(
            arguments,
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout_s,
            env=dict(environment),
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmUnreachableError(
            f"{arguments[0]} gave no answer within {timeout_s:g} s",
            "see whether slurmctld is up and not overloaded (scontrol ping, sdiag)",
        ) from None
    except OSError as error:
        raise SlurmUnreachableError(
            f"{arguments[0]} cannot be started: {error.strerror or error}",
            "install Slurm's commands, or put their folder into PATH",
        ) from None
    return Answer(_text(ended.stdout), _text(ended.stderr), ended.returncode)


def complaint(command: str, said: str) -> TiresiasError:
    """The error that fits what a command complained about."""
    words = " ".join(said.split()) or "it failed without a word"
    if _UNREACHABLE.search(said):
        return SlurmUnreachableError(
            f"{command} does not reach Slurm: {words[:300]}",
            "see whether slurmctld, munged and, for sacct, slurmdbd are up",
        )
    if is_denial(said):
        return SlurmPermissionError(
            f"Slurm refuses {command} to this user: {words[:300]}",
            "run as SlurmUser or root, or give the user AdminLevel Operator with sacctmgr",
        )
    return SlurmAnswerError(
        f"{command} failed: {words[:300]}", "run the command by hand to see what it says"
    )


def is_denial(said: str) -> bool:
    """Whether the complaint says that the user may not do this."""
    return _DENIED.search(said) is not None


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")
