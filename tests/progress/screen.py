"""The output file that the monitor in a job would write for the lines that a test prints."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from slurm_tiresias.job.record import Record
from slurm_tiresias.progress.output import FILE_BYTES, MAGIC, OutputProgress

START_S = 1_700_000_000.0
LOOK_EVERY_S = 10.0

Line = tuple[float, str]
"""The lines that a program prints, each with its time in seconds since the start."""

TEXT_BYTES = 432
PAIR = re.compile(r"(\d+)\s*(?:/|of)\s*(\d+)|(\d+)%")


def slot(text: bytes, first_s: float, last_s: float, changed_s: float, written: int = 1) -> bytes:
    """A slot of the file (spank/monitor/output.h)."""
    times = (int(1000 * seconds) for seconds in (first_s, last_s, changed_s))
    head = struct.pack("<II7QII", MAGIC, written, 1, 1, *times, 0, 0, 0, len(text[:TEXT_BYTES]))
    return head + text[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0") + struct.pack("<II", 0, written)


@dataclass
class Screen:
    """The latest text of each shape: the words before the last count, and its total."""

    slots: dict[tuple[str, str], tuple[str, float, float, float, str]] = field(default_factory=dict)

    def show(self, text: str, at_s: float) -> None:
        """Print text at a time since 1970."""
        for piece in re.split(r"[\r\n]", text):
            pairs = list(PAIR.finditer(piece))
            if not pairs:
                continue
            pair = next((pair for pair in reversed(pairs) if pair[2]), pairs[-1])
            shape = re.sub(r"[^A-Za-z]", "", piece[: pair.start()]), pair[2] or ""
            _, first_s, _, changed_s, step = self.slots.get(shape, ("", at_s, at_s, at_s, ""))
            if step != pair[1]:
                changed_s = at_s
            self.slots[shape] = piece, first_s, at_s, changed_s, pair[1] or ""

    def content(self) -> bytes:
        """Return the content of the file."""
        slots = [
            slot(text.encode(), first_s, last_s, changed_s)
            for text, first_s, last_s, changed_s, _ in self.slots.values()
        ]
        return b"".join(slots[:8]).ljust(FILE_BYTES, b"\0")


def looks(
    lines: Iterable[Line], every_s: float = LOOK_EVERY_S
) -> Iterator[tuple[float, Record | None]]:
    """Return the accepted progress at each reading of a program that prints these lines."""
    screen, progress = Screen(), OutputProgress()
    look_s = every_s
    for at_s, text in lines:
        while look_s <= at_s:
            yield look_s, progress.update(screen.content(), START_S + look_s)
            look_s += every_s
        screen.show(text, START_S + at_s)
    yield look_s, progress.update(screen.content(), START_S + look_s)
