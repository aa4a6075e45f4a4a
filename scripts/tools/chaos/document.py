"""scripts/records/reliability.md: the faults that the controller was exposed to, and what came."""

from __future__ import annotations

import click

from scripts import ROOT
from scripts.tools.document import Document, write_section

RELIABILITY = Document(
    ROOT / "scripts" / "records" / "reliability.md",
    """# Reliability

Each section is written by the command it names, on a real Slurm; what stands here was counted, not
typed. [operate.md](../../docs/how-to/operate.md) has what the controller does on failures.
""",
)


def record(title: str, command: str, body: str) -> None:
    """With ``chaos --record``, replace the section of this title, or append it."""
    if click.get_current_context().obj:
        write_section(title, command, body, RELIABILITY)
