"""The form of an explanation, which each way of showing it renders by itself.

Times in its sentences are marked (``text.at``), because a browser writes them in its own time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from slurm_tiresias.text import with_times

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it; ``items`` are sentences that are shown as a list."""

    title: str
    sentences: tuple[str, ...] = ()
    items: tuple[str, ...] = ()

    @property
    def local(self) -> Section:
        """Return the section with its times in this machine's time zone."""
        return Section(
            self.title, tuple(map(with_times, self.sentences)), tuple(map(with_times, self.items))
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is said of a job or an array."""

    headline: tuple[str, ...]
    sections: tuple[Section, ...]
    data: Mapping[str, object] = field(default_factory=dict)
    """What it follows from, for programs. Fields are added, never changed."""

    def as_data(self) -> dict[str, object]:
        """Return the explanation for ``--json``."""
        return {**self.data, "sections": [asdict(section.local) for section in self.sections]}
