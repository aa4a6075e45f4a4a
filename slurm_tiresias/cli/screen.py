"""Where the output goes: how wide it is, and whether it takes colour and Unicode."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from slurm_tiresias.cli.text import as_ascii, cells

NARROWEST = 20
WIDEST_PROSE = 100


@dataclass(frozen=True, slots=True)
class Screen:
    """``width`` is in cells; None where nothing may be cut or wrapped: a pipe or a file."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True

    def style(self, text: str, look: str) -> str:
        """The text in one of ``LOOKS``, where there is colour; otherwise as it is."""
        return click.style(text, **LOOKS[look]) if self.colour and look else text

    def show(self, lines: Iterable[str]) -> None:
        text = "".join(self.encodable(line) + "\n" for line in lines)
        click.echo(text, nl=False, color=self.colour)

    def encodable(self, line: str) -> str:
        return line if self.unicode else as_ascii(line)

    def prose(self, sentences: str, indent: str = "  ") -> list[str]:
        """A paragraph, wrapped to the screen; in a pipe it stays one line, good to search in."""
        if self.width is None:
            return [indent + sentences]
        width = min(self.width, WIDEST_PROSE)
        return textwrap.wrap(
            sentences,
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )

    def flow(self, pieces: Sequence[str], gap: str = "  ") -> list[str]:
        """The pieces side by side, as many a line as fit; none is broken that fits on a line."""
        lines: list[str] = []
        for piece in itertools.chain.from_iterable(map(self._broken, pieces)):
            if lines and self.fits(lines[-1] + gap + piece):
                lines[-1] += gap + piece
            else:
                lines.append(piece)
        return lines

    def _broken(self, piece: str) -> list[str]:
        if self.width is None or self.fits(piece):
            return [piece]
        return textwrap.wrap(click.unstyle(piece), self.width)

    def fits(self, line: str) -> bool:
        """Whether a line, which may be styled, is not wider than the screen."""
        return self.width is None or cells(click.unstyle(line)) <= self.width


LOOKS: Mapping[str, Mapping[str, Any]] = {
    "good": {"fg": "green"},
    "note": {"fg": "yellow"},
    "bad": {"fg": "red", "bold": True},
    "other": {"fg": "blue"},
    "quiet": {"dim": True},
    "title": {"bold": True},
}


def stdout() -> Screen:
    """The screen that standard output is."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Screen(
        width=max(NARROWEST, shutil.get_terminal_size().columns) if terminal else None,
        colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        unicode=_takes_unicode(),
    )


def _takes_unicode() -> bool:
    """Python speaks UTF-8 in the C locale too; the terminal there may not."""
    in_c_locale = bool(sys.flags.utf8_mode) and "PYTHONUTF8" not in os.environ
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return not in_c_locale and encoding.lower().replace("-", "") == "utf8"
