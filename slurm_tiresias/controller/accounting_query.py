"""A query to accounting that runs beside the cycles: slurmdbd may answer slowly, or hang."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slurm_tiresias.slurm.protocol import AccountedRun, Slurm


class AccountingQuery:
    """A query about some jobs, sent when it is created."""

    def __init__(self, slurm: Slurm, keys: Sequence[str], since_s: float) -> None:
        self.keys = keys
        self._slurm = slurm
        self._since_s = since_s
        self._rows: Sequence[AccountedRun] = ()
        self._error: Exception | None = None
        # A daemon thread: stopping the controller does not wait for it.
        self._thread = threading.Thread(target=self._ask, name="accounting", daemon=True)
        self._thread.start()

    def is_over_within(self, seconds: float) -> bool:
        """Wait at most this long for the query to end; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def rows(self) -> Sequence[AccountedRun]:
        """Return the answer of a query that has ended; raise what the driver raised."""
        if self._error is not None:
            raise self._error
        return self._rows

    def _ask(self) -> None:
        try:
            self._rows = self._slurm.runs(self.keys, self._since_s)
        except Exception as error:
            self._error = error
