"""What a request to the controller's socket is answered by."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

Text = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Peer:
    """The user of the client."""

    uid: int

    @property
    def sees_everything(self) -> bool:
        """Whether the user is root or the controller's own user."""
        return self.uid in (0, os.geteuid())

    @property
    def name(self) -> str:
        """The user's name, as Slurm knows it; "" for a uid that this host does not know.

        Only computing threads should ask for it: a directory service may be slow.
        """
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return ""

    def __str__(self) -> str:
        return f"{self.name} (uid {self.uid})" if self.name else f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class Question:
    """A request without its name. ``is_over`` returns whether the client has disconnected."""

    peer: Peer
    text: str
    is_over: Callable[[], bool]

    def stop_after(self, seconds: float) -> Callable[[], bool]:
        """Make a ``stop`` for ``Ledger.to_read``: true after a time, or if the client has gone."""
        until_s = time.monotonic() + seconds
        return lambda: self.is_over() or time.monotonic() >= until_s


@dataclass(frozen=True, slots=True)
class Service:
    """Answers one kind of request, with JSON.

    ``answer`` computes the whole answer, and may raise ``TiresiasError``, which the client raises
    in turn. ``long``: it may take seconds, and those of other services do not wait for it.
    ``ready`` returns what needs no computing: the answer, or one that another thread makes.
    ``remedy`` is what to do about an answer that is too large.
    """

    answer: Callable[[Question], Text] = lambda _question: b""
    long: bool = False
    ready: Callable[[Question], Text | Future[Text] | None] = lambda _question: None
    remedy: str = ""
