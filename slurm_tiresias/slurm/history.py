"""Run ``sacct`` over a long period: the answer may be large and is buffered in a file."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError, UsageError
from slurm_tiresias.slurm import process
from slurm_tiresias.slurm.protocol import Commands

PATIENCE_S = 1800.0
"""slurmdbd needs minutes for years of a busy cluster."""

MOST_WORDS = 300
"""How many characters of sacct's error message are shown."""

_NO_SUCH_TIME = re.compile(r"Invalid time specification|Start time .* requested is after end time")
_TOO_MUCH = re.compile(r"Too wide of a date range in query|Query result exceeds size limit")
"""slurmdbd.conf can bound both: MaxQueryTimeRange, and the size of an answer."""


def printed(arguments: Sequence[str], extra: Mapping[str, str], commands: Commands) -> bytes:
    """Return sacct's output for these arguments, with ``extra`` added to its environment.

    Raises ``UsageError`` if sacct rejects the requested time or the cluster has no accounting, and
    ``SlurmUnreachableError`` if sacct is missing or slurmdbd does not answer.
    """
    environment = process.environment({**commands.environment, **extra})
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as complaints:
        status = _run([commands.sacct, *arguments], environment, answer, complaints)
        said = _read(complaints).decode(errors="replace")
        if status != 0 or "error:" in said:
            raise _refused(said)
        return _read(answer)


def _run(
    command: Sequence[str], environment: Mapping[str, str], answer: IO[bytes], complaints: IO[bytes]
) -> int:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=complaints,
            timeout=PATIENCE_S,
            env=dict(environment),
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        raise SlurmUnreachableError(
            f"sacct gave no answer within {PATIENCE_S:g} s", "Ask for less of the history"
        ) from None
    except OSError as error:
        raise SlurmUnreachableError(
            f"{command[0]} cannot be started: {error.strerror or error}",
            "Install Slurm's commands, or put their folder into PATH",
        ) from None


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _refused(said: str) -> TiresiasError:
    words = " ".join(said.split())[:MOST_WORDS]
    if process.NO_ACCOUNTING in said:
        return UsageError(
            "this cluster has no accounting",
            "Set AccountingStorageType=accounting_storage/slurmdbd, or use a trace from elsewhere",
        )
    if _NO_SUCH_TIME.search(said):
        return UsageError(
            f"sacct does not accept this time: {words}",
            "Write a date that has passed, like 2026-01-31, or a span, like now-30days",
        )
    if _TOO_MUCH.search(said):
        return UsageError(
            f"slurmdbd refuses an answer of this length: {words}",
            "Name a later time, or see MaxQueryTimeRange in slurmdbd.conf",
        )
    return process.complaint("sacct", said)
