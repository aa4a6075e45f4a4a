"""The files that hosting sites read: citation, issue forms, changelog, security policy, licence."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import ROOT
from scripts.tools.docs.commands import Command
from slurm_tiresias import __version__
from tests.docs.parsers import is_a_command

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))
FIELD_TYPES = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
CHANGES = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
MOST_WORDS = 900


def citation() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert isinstance(found, dict)
    return found


def each_form() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)


def test_the_citation_has_what_the_format_requires_and_names_this_version() -> None:
    found = citation()
    assert found["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= found.keys()
    assert found["version"] == __version__


def test_the_citation_names_the_paper() -> None:
    (paper,) = citation()["references"]
    assert paper["type"] == "conference-paper" and paper["title"].startswith("Tiresias:")
    assert paper["authors"][0]["family-names"] == "Gu" and paper["year"] == 2019


def test_every_file_that_names_the_licence_names_the_same() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert setup["metadata"]["license"] == citation()["license"] == "MIT"


def test_there_are_forms_for_bugs_and_for_features() -> None:
    assert [form.stem for form in FORMS] == ["bug_report", "feature_request"]


@each_form()
def test_an_issue_form_is_well_formed(form: Path) -> None:
    found = yaml.safe_load(form.read_text())
    assert found["name"] and found["description"]
    fields = [field for field in found["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in found["body"]} <= FIELD_TYPES
    assert all(field["attributes"]["label"] for field in fields)
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids))
    assert any(field.get("validations", {}).get("required") for field in fields)


@each_form()
def test_every_command_in_an_issue_form_exists(form: Path) -> None:
    for text in re.findall(r"`(tiresias-slurm [^`]+)`", form.read_text()):
        words = Command(form.name, 0, "", text).words
        assert words[1:] == ["--version"] or is_a_command(words), text


def test_a_bug_report_asks_for_doctor_and_both_versions() -> None:
    found = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml").read_text())
    required = {
        field["attributes"].get("description", "")
        for field in found["body"]
        if field.get("validations", {}).get("required")
    }
    for command in ("tiresias-slurm doctor", "tiresias-slurm --version", "sinfo --version"):
        assert any(f"`{command}`" in description for description in required), command


def test_the_pull_request_template_names_files_that_exist() -> None:
    template = (ROOT / ".github" / "pull_request_template.md").read_text()
    for path in re.findall(r"`(?:\./)?([\w./-]+)`", template):
        assert (ROOT / path).exists(), path


def test_the_changelog_begins_with_this_version_and_has_known_sections() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)[0] == __version__
    sections = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(sections) <= set(CHANGES)
    assert len([word for word in text.split() if re.search("[A-Za-z]", word)]) <= MOST_WORDS


def test_the_security_policy_gives_a_way_to_report_and_no_invented_address() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "private vulnerability reporting" in text
    assert not re.search(r"\S+@\S+\.\w+", text)
