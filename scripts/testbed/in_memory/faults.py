"""Faults between a program and Slurm."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal

from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError
from slurm_tiresias.slurm.protocol import Write

Call = Literal["observe", "write", "signal", "runs", "cluster", "dependency", "limits"]
"""The methods of a driver that can fail."""


class Faults:
    """The faults to inject. Each happens once, at the next call that it applies to."""

    def __init__(self) -> None:
        self._failing: Counter[Call] = Counter()
        self._unheard: Counter[Call] = Counter()
        self._cut_off: deque[int] = deque()
        self._refusals: list[tuple[str, str]] = []
        self._refused_signals: dict[str, str] = {}

    def fail_next(self, call: Call, times: int = 1) -> None:
        """Make the next calls raise ``SlurmUnreachableError`` without doing anything."""
        self._failing[call] += times

    def lose_answer(self, call: Call, times: int = 1) -> None:
        """Make the next calls raise ``SlurmUnreachableError`` after being carried out."""
        self._unheard[call] += times

    def cut_off_writes(self, done: int) -> None:
        """Carry out only the first ``done`` of the next batch of writes; then Slurm is down."""
        self._cut_off.append(done)

    def refuse_next(self, words: str, key: str = "") -> None:
        """Refuse the next write, or the next for this key, with this message."""
        self._refusals.append((key, words))

    def refuse_signals(self, key: str, words: str) -> None:
        """Refuse every signal to a job with this message; "" ends that."""
        self._refused_signals[key] = words

    def forget(self) -> None:
        """Remove all faults."""
        self._failing.clear()
        self._unheard.clear()
        self._cut_off.clear()
        self._refusals.clear()
        self._refused_signals.clear()

    # Called by the driver

    def before(self, call: Call) -> None:
        """Raise the error that is due before the call is carried out."""
        if self._failing[call]:
            self._failing[call] -= 1
            raise unreachable()

    def after(self, call: Call) -> None:
        """Raise the error that is due after the call was carried out."""
        if self._unheard[call]:
            self._unheard[call] -= 1
            raise unreachable()

    def next_cut(self) -> int | None:
        """Return how many of this batch of writes to carry out; None for all."""
        return self._cut_off.popleft() if self._cut_off else None

    def refusal_of(self, write: Write) -> str:
        """Return the message with which to refuse this write; "" if not refused."""
        for refusal in self._refusals:
            if refusal[0] in ("", write.key):
                self._refusals.remove(refusal)
                return refusal[1]
        return ""

    def refused_signals(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the refusal messages for signals to these jobs, by job."""
        return {key: words for key in keys if (words := self._refused_signals.get(key))}


def unreachable() -> TiresiasError:
    """Return the error of a driver if slurmctld does not answer."""
    return SlurmUnreachableError("slurmctld is down: injected by a test", "wait for it")
