"""The commands in the pages: those in code blocks, and complete ones in prose."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.tools.docs.pages import Line, Page

PROGRAMS = frozenset(
    {
        *(
            "tiresias-slurm",
            "sbatch",
            "srun",
            "salloc",
            "scontrol",
            "squeue",
            "sacct",
            "scancel",
            "sinfo",
        ),
        *("apt-get", "systemctl", "systemd-analyze", "install", "ln", "rm", "sed", "cat", "echo"),
        *("eval", "python3", "pip", "pytest", "make", "man", "docker", "ssh", "sudo", "for"),
    }
)
"""First words of lines that are commands, besides all programs in scripts/ or a bin/."""

_PATH = re.compile(r"(\./)?scripts/[\w-]+|/[\w/.-]+/bin/\w+")
_OWN = re.compile(r"tiresias-slurm \w|(\./)?scripts/[\w-]+ |pytest ")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True, slots=True)
class Command:
    """A command as typed, without the comment after it."""

    page: str
    line: int
    section: str
    text: str
    in_prose: bool = False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def begins_a_command(line: str) -> bool:
    words = line.split()
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return bool(words) and (words[0] in PROGRAMS or _PATH.fullmatch(words[0]) is not None)


def commands(page: Page) -> Iterator[Command]:
    """Yield every command of a page."""
    for block in page.blocks():
        if not block[0].language:
            yield from _of_block(page, block)
    for number, text in page.words():
        if _OWN.match(text):
            yield Command(page.name, number, "", text, in_prose=True)


def _of_block(page: Page, block: Sequence[Line]) -> Iterator[Command]:
    rest = iter(block)
    for line in rest:
        first = line.text.strip().removeprefix("$ ")
        if not begins_a_command(first):
            continue
        text = _without_comment(first)
        while not _is_whole(text) and (more := next(rest, None)):
            text += "\n" + _without_comment(more.text.strip())
        yield Command(page.name, line.number, line.section, text.replace("\\\n", ""))


def _is_whole(text: str) -> bool:
    """Whether the text is a complete shell command."""
    is_a_loop = text.startswith("for ")
    if text.endswith("\\") or (is_a_loop and "done" not in text.split()):
        return False
    return text.count("'") % 2 == 0


def _without_comment(line: str) -> str:
    return re.sub(r"\s*# .*$", "", line)


def in_section(page: Page, section: str) -> list[Command]:
    """Return the commands in the code blocks of one section, in order."""
    return [each for each in commands(page) if each.section == section and not each.in_prose]
