"""The contents of the packages: manual, completion, configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.tools.packages.commands import commands
from scripts.tools.packages.completion import FILES, VARIABLE, at_once, scripts
from scripts.tools.packages.manual import escaped, pages
from slurm_tiresias.cli.config import tables
from slurm_tiresias.config import parse
from slurm_tiresias.settings import Config

ROOT = Path(__file__).parents[1]
ORDERS = {".TH", ".SH", ".PP", ".TP", ".nf", ".fi", ".br"}


@pytest.fixture(scope="module")
def manual() -> dict[str, str]:
    return dict(pages())


def test_every_command_has_a_page_with_all_its_options(manual: dict[str, str]) -> None:
    for context in commands():
        name = context.command_path.replace(" ", "-")
        (page,) = (text for file, text in manual.items() if file.rpartition(".")[0] == name)
        options = (one for one in context.command.params if isinstance(one, click.Option))
        for option in options:
            assert all(escaped(word) in page for word in option.opts if not option.hidden), name
        assert escaped("-h, --help") in page


def test_every_setting_is_in_its_page_with_its_default(manual: dict[str, str]) -> None:
    page = manual["tiresias.toml.5"]
    for table, _, settings in tables():
        _, _, section = page.partition(f".SH [{table}]\n")
        for setting in settings:
            assert rf"\fB{escaped(setting.name)}\fR = " in section.split(".SH ")[0]
            assert escaped(setting.metadata["doc"]) in section


def test_pages_name_every_exit_code_and_refer_to_pages_that_exist(manual: dict[str, str]) -> None:
    codes = manual["tiresias-slurm.1"].partition(".SH EXIT STATUS\n")[2].split(".SH ")[0]
    assert re.findall(r"\\fB(\d+)\\fR", codes)[:10] == [str(code) for code in range(10)]
    for text in manual.values():
        for name, section in re.findall(r"\\fB([^\\ ]\S*)\\fR\((\d)\)", text):
            assert f"{name}.{section}".replace(r"\-", "-") in manual


def test_text_in_a_manual_page_contains_no_stray_commands(manual: dict[str, str]) -> None:
    for name, text in manual.items():
        for line in text.splitlines():
            assert not line.startswith("'")
            assert not line.startswith(".") or line.split()[0] in ORDERS, f"{name}: {line}"


@given(st.text())
def test_text_is_escaped_for_the_formatter(text: str) -> None:
    safe = escaped(text)
    assert len(safe.splitlines()) <= 1
    assert not safe.startswith((".", "'"))
    assert re.fullmatch(r"(?:[^\\]|\\&|\\-|\\\((?:rs|aq|ga|ha|ti|dq))*", safe)


@pytest.mark.skipif(shutil.which("man") is None, reason="no man")
def test_man_reports_no_error_in_any_page(manual: dict[str, str], tmp_path: Path) -> None:
    for name, text in manual.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ended = subprocess.run(
        ["man", "--warnings", "-l", *(tmp_path / name for name in manual)],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PAGER": "cat"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "TIRESIAS-SLURM(1)" in ended.stdout


def test_there_is_a_completion_for_each_shell() -> None:
    written = dict(scripts())
    assert written.keys() == set(FILES.values())
    assert all(VARIABLE in text for text in written.values())


def test_zsh_completes_at_the_first_tab_with_an_older_click_too() -> None:
    older = "#compdef x\n\n_x() {\n    compadd -a one\n}\n\ncompdef _x x;\n\n"
    assert at_once(older).endswith('}\n\n_x "$@"\n')
    newer = "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n_x\nelse\ncompdef _x x\nfi\n"
    assert at_once(newer) == newer


def test_completion_loads_only_the_needed_modules() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "slurm_tiresias.cli"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            VARIABLE: "bash_complete",
            "COMP_WORDS": "tiresias-slurm ",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    offered = set(ended.stdout.split())
    assert {"plain,status", "plain,simulate", "plain,tune"} <= offered
    assert "numpy" not in ended.stderr
    assert "slurm_tiresias.cli.main" in ended.stderr
    assert "slurm_tiresias.cli.status" not in ended.stderr


def test_the_packages_configuration_is_the_example_which_is_in_shadow_mode() -> None:
    (source,) = re.findall(
        "^(.*) etc/slurm-tiresias$",
        (ROOT / "debian" / "slurm-tiresias.install").read_text(),
        re.MULTILINE,
    )
    found = parse(tomllib.loads((ROOT / source).read_text()))
    assert found == Config() and found.controller.mode == "shadow"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version", "1; rm"], 1), (["--version"], 1), (["--what"], 2), (["--version", "-h"], 1)],
)
def test_invalid_build_options_are_a_one_line_error(arguments: list[str], code: int) -> None:
    ended = subprocess.run(
        [ROOT / "scripts" / "package", *arguments], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert re.fullmatch(r"package: error: [^\n]+\n", ended.stderr)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install what the build needs")
def test_the_packages_are_built_with_debians_python_in_any_shell(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    ended = subprocess.run(
        [ROOT / "scripts" / "package", "--into", tmp_path / "dist"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "dist").glob("*.deb"))) == 4
    assert len(list((tmp_path / "dist").glob("*.whl"))) == 2
