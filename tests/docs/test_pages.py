"""What the pages say of the program is so: links, settings, exit codes, paths, code, the map."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest

from scripts import ROOT
from scripts.tools.docs.pages import Page, page, pages
from scripts.tools.packages.commands import exit_codes
from scripts.tools.packages.reference import page as reference
from slurm_tiresias.cli.config import tables
from slurm_tiresias.config import parse
from slurm_tiresias.controller.metric_definitions import METRICS
from tests.test_architecture import MAY_IMPORT

EVERY = pages()
SETTINGS = {f"{table}.{each.name}" for table, _, settings in tables() for each in settings}
TABLES = {name.partition(".")[0] for name in SETTINGS}
CODES = dict(exit_codes())
IN_THE_REPOSITORY = re.compile(
    r"(\./)?((etc|examples|scripts|slurm_tiresias|spank|tests|containers|debian)/[\w./-]*)"
)


def each_page() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("one", EVERY, ids=lambda one: str(one.name))


@each_page()
def test_every_link_leads_somewhere(one: Page) -> None:
    for number, target in one.links():
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (one.folder / path).resolve() if path else ROOT / one.name
        assert file.exists(), f"{one.name}:{number}: there is no {path}"
        if anchor:
            name = str(file.relative_to(ROOT))
            assert anchor in page(name).anchors(), f"{one.name}:{number}: no heading #{anchor}"


@each_page()
def test_every_setting_that_is_named_exists(one: Page) -> None:
    for number, word in one.words():
        match = re.match(r"(\w+)\.([a-z]\w*)\b(?![./(])", word)
        if match and match[1] in TABLES and match[2] not in ("py", "md", "conf"):
            assert match[0] in SETTINGS, f"{one.name}:{number}: there is no setting {match[0]}"


@each_page()
def test_every_test_that_is_named_exists(one: Page) -> None:
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    for number, word in one.words():
        if re.fullmatch(r"test_\w+", word):
            assert word in there, f"{one.name}:{number}: there is no {word}"


@each_page()
def test_every_metric_that_is_named_exists(one: Page) -> None:
    known = {metric.name for metric in METRICS}
    known |= set(re.findall(r"function (tiresias_\w+)", (ROOT / "etc/job_submit.lua").read_text()))
    for number, word in one.words():
        name = re.match(r"tiresias_[a-z_]+[a-z](?![\w.])", word)
        if name and name[0] != "tiresias_slurm":
            assert name[0] in known, f"{one.name}:{number}: there is no metric {name[0]}"


@each_page()
def test_every_path_that_is_named_exists(one: Page) -> None:
    for number, word in one.words():
        match = IN_THE_REPOSITORY.match(word)
        if match and not word.startswith("scripts/NAME"):
            path = match[2].rstrip("/.")
            assert (ROOT / path).exists(), f"{one.name}:{number}: there is no {path}"


@each_page()
def test_every_file_of_the_package_that_is_named_exists(one: Page) -> None:
    for number, word in one.words():
        part, slash, _ = word.partition("/")
        if slash and part in MAY_IMPORT and re.fullmatch(r"[\w./]+", word):
            path = ROOT / "slurm_tiresias" / word
            assert path.exists(), f"{one.name}:{number}: there is no {path.relative_to(ROOT)}"


@each_page()
def test_every_documented_configuration_is_valid(one: Page) -> None:
    for block in one.blocks():
        for text in re.split(r"\n\n+", "\n".join(line.text.strip() for line in block)):
            header = re.match(r"\[(\w+)\]\n", text)
            if header and header[1] in TABLES:
                parse(tomllib.loads(text))


@each_page()
def test_every_exit_code_that_is_named_exists(one: Page) -> None:
    for number, text in one.paragraphs():
        for code in re.findall(r"[Ee]xit codes? (\d+)", text):
            assert code in CODES, f"{one.name}:{number}: no command ends with {code}"


def test_the_reference_of_commands_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "out of date; run scripts/dev generate"


@each_page()
def test_every_piece_of_python_compiles(one: Page) -> None:
    for block in one.blocks():
        if block[0].language == "python":
            compile("\n".join(line.text for line in block), f"{one.name}:{block[0].number}", "exec")


def test_every_documented_example_parses() -> None:
    for file in (ROOT / "examples").glob("*.py"):
        compile(file.read_text(), file.name, "exec")
    for file in (ROOT / "examples").glob("*.sbatch"):
        subprocess.run(["bash", "-n", file], check=True)


def test_the_architecture_page_matches_the_architecture_rules() -> None:
    said: dict[str, set[str]] = {}
    for line in page("docs/explanation/architecture.md").lines:
        if line.section == "Packages" and line.text.startswith("| `"):
            part, _, *may_import = (cell.strip() for cell in line.text.strip("|").split("|"))
            if may_import:
                said[part.strip("`")] = set(re.findall(r"`(\w+)`", may_import[0]))
    assert said == MAY_IMPORT


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = page("docs/README.md")
    linked = {
        (contents.folder / target.partition("#")[0]).resolve() for _, target in contents.links()
    }
    pages_of_docs = {ROOT / one.name for one in EVERY if one.name.startswith("docs/")}
    assert pages_of_docs - {ROOT / contents.name} <= linked


def test_the_pages_stay_short() -> None:
    words = sum(
        any(letter.isalpha() for letter in word)
        for path in (ROOT / "docs").rglob("*.md")
        for word in path.read_text(encoding="utf-8").split()
    )
    assert words <= 31_000
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
