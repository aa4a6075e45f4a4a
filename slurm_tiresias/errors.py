"""All errors shown to people: one line with what is wrong and what to do, and an exit code."""

from __future__ import annotations

from typing import ClassVar

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell: 128 + SIGINT."""


class TiresiasError(Exception):
    """The root of all errors this program raises on purpose.

    ``what`` states the problem, ``remedy`` what to do about it; both are one line of plain text.
    ``exit_code`` is what the command line returns; ``kind`` is the word under which the controller
    counts cycles that failed with this error.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "other"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        # ``what`` may end with a message of Slurm that has its own full stop.
        return f"{self.what.rstrip('.')}. {self.remedy[:1].upper()}{self.remedy[1:]}."


class UsageError(TiresiasError):
    """The command line names something that does not exist, or options that cannot be combined."""

    exit_code = 2


class TraceError(UsageError):
    """A trace does not have the format that it should have; ``what`` names the file and the
    line."""


class NotRunningError(TiresiasError):
    """No controller answers, or its published state is out of date."""

    exit_code = 3


class ConfigError(TiresiasError):
    """The configuration file is missing, unreadable or wrong."""

    exit_code = 4
    kind = "config"


class SlurmUnreachableError(TiresiasError):
    """slurmctld or one of Slurm's commands does not answer."""

    exit_code = 5
    kind = "slurm-unreachable"


class SlurmPermissionError(TiresiasError):
    """Slurm refuses this user the operations that the controller needs."""

    exit_code = 6
    kind = "slurm-permission"


class SlurmAnswerError(TiresiasError):
    """Slurm's answer cannot be read, and was not acted on."""

    exit_code = 7
    kind = "slurm-answer"


class LedgerError(TiresiasError):
    """The ledger cannot be opened, read or written."""

    exit_code = 8
    kind = "ledger"


class DamagedLedgerError(TiresiasError):
    """The ledger exists but is damaged: it must be rebuilt from accounting."""

    exit_code = 11
    kind = "damaged-ledger"


class AlreadyRunningError(TiresiasError):
    """Another controller holds the state directory."""

    exit_code = 9


class LeaseLostError(AlreadyRunningError):
    """This controller must not act any more: its lease is over, and another one may hold it."""


class BindingError(TiresiasError):
    """pyslurm was requested but is missing, was built for another Slurm, or crashed."""

    exit_code = 14
    kind = "binding"


class RefusedError(TiresiasError):
    """The controller refuses to answer: the answer is too large, or there were too many
    requests."""

    exit_code = 15


class InternalError(TiresiasError):
    """An error in this program itself, after which it continues."""

    kind = "internal"


def kinds() -> list[str]:
    """Return every ``TiresiasError.kind``."""
    found, classes = set(), [TiresiasError]
    while classes:
        one = classes.pop()
        found.add(one.kind)
        classes += one.__subclasses__()
    return sorted(found)
