"""The words of the package: one term for one thing, and no word that hides its subject.

docs/design.md has the glossary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "slurm_tiresias"

INSTEAD = {
    r"nobody|somebody|whoever": "the subject: which user, job or process",
    r"tenan(t|cy)\w*": "candidate (for preemption)",
    r"evict\w*": "preempt, victim",
    r"appeals?": "preemptor",
    r"winners?": "preemptor",
    r"asked to leave|ask\w* \w+ to leave": "preempt, signal or requeue",
    r"incarnations?": "run",
    r"the book": "the job store",
    r"given up on|gave up on": "backs off",
}
"""What is not written any more, and the term that stands for it."""

EXCEPTIONS = {
    "status/privacy.py": "whose jobs are shown: 'nobody' is what a hidden user is called there",
    "status/report_query.py": "the same",
    "store/ledger.py": "the tables of databases that exist: incarnations, gave_up_s",
    "controller/rebuild.py": "the JSON field incarnations",
    "cli/ledger.py": "the same",
}
"""Files that may have such words, and why."""


def _found() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.relative_to(PACKAGE))
        if name in EXCEPTIONS:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for words, instead in INSTEAD.items():
                if match := re.search(rf"(?<![\w-])({words})(?![\w-])", line, re.IGNORECASE):
                    yield f"{name}:{number}: {match[0]!r}: write {instead}"


def test_the_package_uses_the_terms_of_the_glossary() -> None:
    assert list(_found()) == []


def test_every_exception_is_needed() -> None:
    words = re.compile("|".join(INSTEAD), re.IGNORECASE)
    for name in EXCEPTIONS:
        assert words.search((PACKAGE / name).read_text()), name
