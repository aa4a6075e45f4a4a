"""A query to accounting that runs beside the cycles: slurmdbd may answer slowly, or hang."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slurm_tiresias.slurm.protocol import AccountedRun, Slurm

MOST_KEYS_AT_ONCE = 500
"""A part of a query; after one without an answer no other is sent."""


class AccountingQuery:
    """A query about some jobs, sent when it is created, in parts."""

    def __init__(self, slurm: Slurm, keys: Sequence[str]) -> None:
        self.answered: list[str] = []
        """The jobs about which accounting has answered."""
        self.rows: list[AccountedRun] = []
        self.unanswered: Sequence[str] = ()
        """The jobs of the part that failed."""
        self._keys = keys
        self._slurm = slurm
        self._error: Exception | None = None
        # A daemon thread: stopping the controller does not wait for it.
        self._thread = threading.Thread(target=self._ask, name="accounting", daemon=True)
        self._thread.start()

    def is_over_within(self, seconds: float) -> bool:
        """Wait at most this long for the query to end; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def raise_error(self) -> None:
        """Raise what the driver raised for a part of a query that has ended."""
        if self._error is not None:
            raise self._error

    def _ask(self) -> None:
        for at in range(0, len(self._keys), MOST_KEYS_AT_ONCE):
            part = self._keys[at : at + MOST_KEYS_AT_ONCE]
            try:
                # Not from a submission on: the clock may have been set back since.
                self.rows += self._slurm.runs(part, 0.0)
            except Exception as error:
                self._error, self.unanswered = error, part
                return
            self.answered += part
