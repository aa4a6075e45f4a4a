"""The terms of the code: one term for each thing, and no word that hides its subject.

docs/explanation/architecture.md has the glossary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

FOLDERS = ("slurm_tiresias", "scripts", "tests", "spank", "etc", "examples")
SUFFIXES = (".py", ".c", ".h", ".lua", ".sh", ".conf", ".service", ".mount", ".toml", ".yml")
"""Files to check, besides those without a suffix that begin with ``#!``."""

DOC_PAGES = ("*.md", "docs/**/*.md", "examples/*.md", ".github/**/*")
"""Patterns of the pages to check. The change log and the records name what was there before."""

INSTEAD = {
    # Words that hide the subject.
    r"(?<![\"'{=])(?<!user )[Nn]obody(?![\"'}]| =)": "the subject: which user, job or process",
    r"(?i:somebody|anybody|whoever)(?![\"'])": "the subject: which user, job or process",
    r"(?<!\{)whom(?![},]| =)": "the subject: which user or job",
    r"(?i:be it|lest|whence|thereof|such a one)": "a plain sentence",
    r"(?i:what (?:becomes|comes|came|became) of)": "what happens to, or the result",
    r"no more(?=[.,;:)])": "no longer, or at most",
    r"(?i:gives? way|gave way)": "is preempted",
    # Terms that the glossary has replaced.
    r"(?i:tenan(?:t|cy)\w*|seats?)": "candidate (for preemption)",
    r"(?i:evict\w*)": "preempt, victim",
    r"(?i:appeals?|winners?)": "preemptor",
    r"(?i:asked to leave|ask\w* \w+ to leave)": "preempt, signal or requeue",
    r"(?i:incarnations?)": "run",
    r"(?i:the book)": "the job store",
    r"(?i:fleets?)": "node index",
    r"(?i:boards?)": "cluster state",
    r"(?i:gave[ -]up|given-up|given up on|resting)": "backs off",
    r"(?i:likeness)": "hash of the topology, or situation",
    r"(?i:chambers?)": "namespaces",
    r"(?i:crowds?)": "mix of jobs, synthetic snapshots",
    r"(?i:rehears\w*)": "test, drill",
    r"(?i:torture\w*)": "chaos",
    r"(?i:the house)": "the architecture",
    r"(?i:yardsticks?)": "reference",
}
"""What is not written any more, and what to write instead."""

EXCEPTIONS = {
    ("tests/test_words.py", ""): "the words themselves",
    ("scripts/testbed/cluster/locks.py", "gave up"): "of waiting for a lock",
    ("slurm_tiresias/drill/", "rehears"): "the module that carries out a drill",
    ("slurm_tiresias/cli/drill.py", "rehears"): "the module that carries out a drill",
    ("tests/", "rehears"): "the module that carries out a drill",
    ("docs/", "rehears"): "what users do with a drill",
    ("docs/explanation/comparison.md", "evict"): "the term of Kubernetes",
    ("scripts/tools/matrix/", "rehearse"): "the function that tests an upgrade",
}
"""Beginnings of paths and of the words that may occur there, and why."""


def _is_excepted(name: str, word: str) -> bool:
    return any(
        name.startswith(path) and word.lower().startswith(allowed) for path, allowed in EXCEPTIONS
    )


def _misused(name: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        for words, instead in INSTEAD.items():
            for match in re.finditer(rf"(?<![\w-])(?:{words})(?![\w-])", line):
                if not _is_excepted(name, match[0]):
                    yield f"{name}:{number}: {match[0]!r}: write {instead}"


def _sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if {"recorded", "corpus", "build"} & set(file.parts) or not file.is_file():
                continue
            if file.suffix in SUFFIXES or (not file.suffix and file.read_bytes()[:2] == b"#!"):
                yield file


def _pages() -> Iterator[Path]:
    for pattern in DOC_PAGES:
        found = set(ROOT.glob(pattern)) - {ROOT / "CHANGELOG.md"}
        yield from sorted(path for path in found if path.is_file())


def _found(files: Iterable[Path]) -> list[str]:
    return [
        each
        for file in files
        for each in _misused(str(file.relative_to(ROOT)), file.read_text().splitlines())
    ]


def test_the_code_uses_the_terms_of_the_glossary() -> None:
    assert _found(_sources()) == []


def test_the_pages_use_the_terms_of_the_glossary() -> None:
    assert _found(_pages()) == []


def test_every_kind_of_file_is_checked() -> None:
    checked = {file.suffix for file in _sources()}
    assert checked == {*SUFFIXES, ""}


def test_a_replaced_word_in_prose_is_found() -> None:
    lines = (
        "# Nobody is asked to leave.",
        "/* what becomes of it, and by whom */",
        "-- no tenants",
    )
    found = [each.split(": ")[1] for each in _misused("spank/plugin.h", lines)]
    assert found == ["'Nobody'", "'asked to leave'", "'whom'", "'what becomes of'", "'tenants'"]


def test_names_and_other_uses_are_not_found() -> None:
    lines = ('user = "nobody"', "whom = other", "no more than two", "the dashboard", "at least")
    assert list(_misused("scripts/dev", lines)) == []


def test_every_exception_is_needed() -> None:
    found = {
        (str(file.relative_to(ROOT)), match[0].lower())
        for file in (*_sources(), *_pages())
        for words in INSTEAD
        for match in re.finditer(rf"(?<![\w-])(?:{words})(?![\w-])", file.read_text())
    }
    for path, allowed in EXCEPTIONS:
        assert any(name.startswith(path) and word.startswith(allowed) for name, word in found), (
            path,
            allowed,
        )
