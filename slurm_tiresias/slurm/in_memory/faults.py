"""What goes wrong between a program and Slurm."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal

from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError
from slurm_tiresias.slurm.protocol import Write

Call = Literal["observe", "write", "signal", "runs", "cluster", "dependency", "limits"]
"""What may be asked of a driver, by its method."""


class Faults:
    """Faults that are to come. Each happens once, at the next call that it is about."""

    def __init__(self) -> None:
        self._failing: Counter[Call] = Counter()
        self._unheard: Counter[Call] = Counter()
        self._cut_off: deque[int] = deque()
        self._refusals: list[tuple[str, str]] = []
        self._refused_signals: dict[str, str] = {}

    def fail_next(self, call: Call, times: int = 1) -> None:
        """The next call, or several, raises ``SlurmUnreachableError``; nothing is done."""
        self._failing[call] += times

    def lose_answer(self, call: Call, times: int = 1) -> None:
        """The next call is carried out, and raises ``SlurmUnreachableError`` all the same."""
        self._unheard[call] += times

    def cut_off_writes(self, done: int) -> None:
        """Of the next batch of writes the first so many are carried out; then Slurm is gone."""
        self._cut_off.append(done)

    def refuse_next(self, words: str, key: str = "") -> None:
        """The next write, or the next for this key, is refused with these words."""
        self._refusals.append((key, words))

    def refuse_signals(self, key: str, words: str) -> None:
        """Every signal to a job is refused, until the words are ""."""
        self._refused_signals[key] = words

    def forget(self) -> None:
        """No fault is to come any more."""
        self._failing.clear()
        self._unheard.clear()
        self._cut_off.clear()
        self._refusals.clear()
        self._refused_signals.clear()

    # Asked by the driver

    def before(self, call: Call) -> None:
        """Raise what is to come before anything is done."""
        if self._failing[call]:
            self._failing[call] -= 1
            raise unreachable()

    def after(self, call: Call) -> None:
        """Raise what is to come after all is done."""
        if self._unheard[call]:
            self._unheard[call] -= 1
            raise unreachable()

    def next_cut(self) -> int | None:
        """How many of this batch of writes are carried out; None: all."""
        return self._cut_off.popleft() if self._cut_off else None

    def refusal_of(self, write: Write) -> str:
        """The words with which this write is refused; "" mostly."""
        for refusal in self._refusals:
            if refusal[0] in ("", write.key):
                self._refusals.remove(refusal)
                return refusal[1]
        return ""

    def refused_signals(self, keys: Sequence[str]) -> dict[str, str]:
        """The jobs of these whose signals are refused, with the words."""
        return {key: words for key in keys if (words := self._refused_signals.get(key))}


def unreachable() -> TiresiasError:
    """What a driver raises where slurmctld does not answer."""
    return SlurmUnreachableError("slurmctld is down: a test has it so", "wait for it")
