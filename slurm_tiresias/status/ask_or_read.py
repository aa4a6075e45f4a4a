"""Ask the controller for what its ledger holds, or read the ledger if none answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias.errors import DamagedLedgerError, NotRunningError, RefusedError, TiresiasError
from slurm_tiresias.status.ask import ask
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger

T = TypeVar("T")


def ask_or_read(
    state_dir: Path,
    request: str,
    schema: int,
    parse: Callable[[Mapping[str, Any]], T],
    read: Callable[[Ledger, bool], T],
    answer_s: float | None = None,
) -> T:
    """Ask the controller; if none answers or it refuses, read its ledger if this user may.

    ``read`` is also given whether a controller runs. Raises the same errors as ``ask``.
    """
    try:
        return ask(state_dir, request, schema, parse, answer_s)
    except (NotRunningError, RefusedError) as no_answer:
        try:
            path = newest_ledger(state_dir)
            if path.exists():
                with closing(Ledger.to_read(path)) as ledger:
                    return read(ledger, isinstance(no_answer, RefusedError))
        except DamagedLedgerError:
            raise
        except (OSError, TiresiasError):
            pass
        raise
