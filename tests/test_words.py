"""The terms of the code: one term for each thing, and no word that hides its subject.

docs/explanation/architecture.md has the glossary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("slurm_tiresias", "scripts")

INSTEAD = {
    r"nobody|somebody|whoever": "the subject: which user, job or process",
    r"tenan(t|cy)\w*": "candidate (for preemption)",
    r"evict\w*": "preempt, victim",
    r"appeals?": "preemptor",
    r"winners?": "preemptor",
    r"asked to leave|ask\w* \w+ to leave": "preempt, signal or requeue",
    r"incarnations?": "run",
    r"the book": "the job store",
    r"fleets?": "node index",
    r"boards?": "cluster state",
    r"given up on|gave up on": "backs off",
}
"""What is not written any more, and the term that stands for it."""

EXCEPTIONS = {
    "scripts/testbed/cluster/configuration.py": "Slurm does not find the user nobody by name",
    "scripts/testbed/sites/on_slurm.py": "the table incarnations",
    "scripts/tools/bench/aged.py": "the same",
    "slurm_tiresias/status/privacy.py": "'nobody' is what a hidden user is called there",
    "slurm_tiresias/status/report_query.py": "the same",
    "slurm_tiresias/store/schema.py": "the tables of databases that exist",
    "slurm_tiresias/store/ledger.py": "the tables of databases that exist: incarnations, gave_up_s",
    "slurm_tiresias/controller/rebuild.py": "the JSON field incarnations",
    "slurm_tiresias/cli/ledger.py": "the same",
}
"""Files that may have such words, and why."""


def _found() -> Iterator[str]:
    for file in sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        name = str(file.relative_to(ROOT))
        if name in EXCEPTIONS:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for words, instead in INSTEAD.items():
                if match := re.search(rf"(?<![\w-])({words})(?![\w-])", line, re.IGNORECASE):
                    yield f"{name}:{number}: {match[0]!r}: write {instead}"


def test_the_code_uses_the_terms_of_the_glossary() -> None:
    assert list(_found()) == []


def test_every_exception_is_needed() -> None:
    words = re.compile("|".join(INSTEAD), re.IGNORECASE)
    for name in EXCEPTIONS:
        assert words.search((ROOT / name).read_text()), name
