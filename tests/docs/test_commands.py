"""Every command in the pages is one that works: it is typed here, or what types it is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.tools.docs.commands import Command, begins_a_command, commands
from scripts.tools.docs.pages import pages
from tests.docs.accounted import ELSEWHERE, MAY_END_WITH
from tests.docs.parsers import complaint, is_a_command
from tests.docs.place import SMALLER, TRAINED, TUTORIAL, managed_place

ROOT = Path(__file__).parents[2]
OTHER_PROGRAMS = frozenset(
    {
        *(
            "cd",
            "chmod",
            "chown",
            "cp",
            "curl",
            "dpkg",
            "export",
            "git",
            "grep",
            "journalctl",
            "ls",
        ),
        *("kill", "mkdir", "module", "mount", "mv", "sacctmgr", "slurmctld", "slurmd"),
        *("source", "su", "tar", "tee", "touch", "useradd", "wget", "while", "if"),
    }
)
"""What no page has a use for so far."""
GENERATED = "docs/reference/cli.md"
"""Names every command in prose, and is written from the program."""

EVERY = [one for page in pages() for one in commands(page) if not one.in_prose]
MENTIONED = [
    one for page in pages() for one in commands(page) if one.in_prose and page.name != GENERATED
]
EXAMPLE = ROOT / "etc" / "tiresias.toml"
WORDS_FOR_THINGS = {
    "[SECONDS]": "9",
    "[READER...]": "squeue",
    "DATE": "now",
    "DIRECTORY": str(ROOT),
    "JOBID": "1",
}


def elsewhere(text: str) -> list[str]:
    """What runs a command that is not typed here."""
    return [target for pattern, target in ELSEWHERE.items() if re.fullmatch(pattern, text)]


def what_the_parser_says(command: Command, tmp_path: Path) -> str:
    some_file = tmp_path / "some.csv"
    some_file.touch()
    words = [WORDS_FOR_THINGS.get(word, word) for word in command.words]
    words = [str(some_file) if re.fullmatch(r"FILE|.*\.(csv|json)", w) else w for w in words]
    words = [str(EXAMPLE) if w.endswith("tiresias.toml") else w for w in words]
    return complaint(words[: words.index(">")] if ">" in words else words)


def is_whole(command: Command, tmp_path: Path) -> bool:
    """Whether prose has all of a command, and not just its name."""
    says_more = any(word.startswith("-") or word in WORDS_FOR_THINGS for word in command.words)
    return says_more and not what_the_parser_says(command, tmp_path)


def test_no_block_has_a_command_that_is_not_taken_for_one() -> None:
    for page in pages():
        for block in page.blocks():
            for line in block if not block[0].language else ():
                text = line.text.strip().removeprefix("$ ")
                word = text.partition(" ")[0]
                assert begins_a_command(text) or word not in OTHER_PROGRAMS, (
                    f"{page.name}:{line.number}: add {word} to PROGRAMS of scripts/tools/docs"
                )


@pytest.mark.parametrize("command", EVERY, ids=str)
def test_every_documented_command_is_accepted(command: Command, tmp_path: Path) -> None:
    if command.text.startswith("for ") or "=" in command.words[0]:
        return
    said = what_the_parser_says(command, tmp_path)
    assert not said, f"{command}: {said}"


@pytest.mark.parametrize("command", MENTIONED, ids=str)
def test_every_command_that_prose_mentions_exists(command: Command, tmp_path: Path) -> None:
    if command.text.startswith("tiresias-slurm"):
        assert is_a_command(command.words), f"{command}: there is no such command or option"
    else:
        said = what_the_parser_says(command, tmp_path)
        is_dev = command.words[0] == "scripts/dev"
        assert not said or (is_dev and is_a_command(command.words)), f"{command}: {said}"


def test_every_excluded_command_is_in_the_pages_and_has_a_test_elsewhere() -> None:
    texts = {one.text for one in (*EVERY, *MENTIONED)}
    for pattern in (*ELSEWHERE, *MAY_END_WITH):
        assert any(re.fullmatch(pattern, text) for text in texts), f"no page says {pattern}"
    for pattern in SMALLER:
        assert any(re.search(pattern, text) for text in texts), f"no page says {pattern}"
    for target in ELSEWHERE.values():
        assert (ROOT / target).exists(), f"{target} is not there"


@pytest.mark.slurm
def test_every_other_command_is_typed_and_works(clean_cluster: RealCluster, tmp_path: Path) -> None:
    state = tmp_path / "controller"
    folder = tmp_path / "place"
    state.mkdir()
    folder.mkdir()
    typed: dict[tuple[str, str], Command] = {}
    for command in (*EVERY, *(one for one in MENTIONED if is_whole(one, tmp_path))):
        if command.page != TUTORIAL and not elsewhere(command.text):
            # The same job is another one in the page where it is trained.
            page = command.page if command.page == TRAINED else ""
            typed.setdefault((page, command.text), command)
    wrong = []
    with managed_place(folder, RealController(clean_cluster, state)) as place:
        # Last, when the training has had the time that it takes.
        for command in sorted(typed.values(), key=lambda one: one.text.endswith("--verify")):
            if said := place.run(command.text, command.page):
                wrong.append(f"{command.page}:{command.line}: {said}")
    clean_cluster.run("scancel", "--me")
    assert not wrong, "\n".join(wrong)
