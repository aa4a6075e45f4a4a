"""docs/reliability.md: the faults that the controller was exposed to, and the results."""

from __future__ import annotations

from scripts import ROOT
from scripts.tools.document import Document, write_section

RELIABILITY = Document(
    ROOT / "docs" / "reliability.md",
    """# Reliability

Each section is written by the command it names, on a real Slurm; what stands here was counted, not
typed. What the controller does when something fails is told in [operation.md](operation.md).
""",
)


def record(title: str, command: str, body: str) -> None:
    """Replace the section of this title, or append it."""
    write_section(title, command, body, RELIABILITY)
