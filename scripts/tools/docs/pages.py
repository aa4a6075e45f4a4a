"""The documentation pages as data: sections, code blocks, links, words in backticks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts import ROOT

_FENCE = re.compile(r"```(\w*)")
_HEADING = re.compile(r"(#+) (.+)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page. ``block`` numbers code blocks from 1; 0 is prose."""

    number: int
    text: str
    section: str
    block: int = 0
    language: str = ""
    """The language after the fence; "" for indented blocks."""


@dataclass(frozen=True)
class Page:
    """One page; ``name`` is its path in the repository."""

    name: str
    lines: tuple[Line, ...]

    @property
    def folder(self) -> Path:
        return (ROOT / self.name).parent

    def prose(self) -> Iterator[Line]:
        return (line for line in self.lines if not line.block)

    def blocks(self) -> Iterator[list[Line]]:
        """Yield the lines of each code block."""
        last = max((line.block for line in self.lines), default=0)
        for number in range(1, last + 1):
            yield [line for line in self.lines if line.block == number]

    def paragraphs(self) -> Iterator[tuple[int, str]]:
        """Yield each paragraph of prose as one line, with the number of its first line."""
        first, words = 0, list[str]()
        for line in (*self.prose(), Line(0, "", "")):
            if line.text.strip():
                first = first or line.number
                words.append(line.text.strip())
            elif words:
                yield first, " ".join(words)
                first, words = 0, []

    def links(self) -> Iterator[tuple[int, str]]:
        for number, text in self.paragraphs():
            yield from ((number, target) for target in _LINK.findall(_CODE.sub("", text)))

    def words(self) -> Iterator[tuple[int, str]]:
        """Yield the texts between backticks in prose."""
        for number, text in self.paragraphs():
            yield from ((number, code) for code in _CODE.findall(text))

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, as GitHub names them."""
        headings = (_HEADING.fullmatch(line.text) for line in self.prose())
        return {anchor(heading[2]) for heading in headings if heading}


def anchor(heading: str) -> str:
    """Return GitHub's anchor for a heading."""
    kept = re.sub(r"[^\w\- ]", "", _LINK.sub(lambda m: m[0][1:].partition("]")[0], heading))
    return kept.strip().lower().replace(" ", "-")


def pages() -> list[Page]:
    """Return all documentation pages, and the records that the benchmarks write."""
    found = [*ROOT.glob("*.md"), ROOT / "examples" / "README.md"]
    found += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "scripts" / "records").glob("*.md")]
    return [page(str(path.relative_to(ROOT))) for path in sorted(found)]


def page(name: str) -> Page:
    """Return the page with this path in the repository."""
    return Page(name, tuple(_lines((ROOT / name).read_text(encoding="utf-8"))))


def _lines(text: str) -> Iterator[Line]:
    section, block, fence, indented, blank = "", 0, "", False, True
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _FENCE.match(line.strip()):
            fenced = not fenced
            fence, indented = match[1] if fenced else "", False
            block += fenced
            blank = False
            continue
        code = line.startswith("    ") and (indented or blank)
        if fenced:
            yield Line(number, line, section, block, fence or "text")
        elif code:
            block += not indented
            indented = True
            yield Line(number, line, section, block)
        elif not line.strip() and indented:
            blank = True
            yield Line(number, "", section, block)
        else:
            indented = False
            if heading := _HEADING.fullmatch(line):
                section = heading[2]
            yield Line(number, line, section)
        blank = not line.strip()
