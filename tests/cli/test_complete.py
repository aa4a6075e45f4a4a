"""Shell completion at TAB."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from slurm_tiresias.cli.main import cli
from slurm_tiresias.status import published
from tests.cli.running import Site
from tests.cli.states import busy_state, running, state


def offered(site: Site, *typed: str, shell: str = "bash", **changes: str) -> list[str]:
    """Return the lines sent to the shell for a command line whose last word is being typed."""
    environment: Mapping[str, str] = {
        "TIRESIAS_CONFIG": str(site.config),
        "_TIRESIAS_SLURM_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(("tiresias-slurm", *typed)),
        "COMP_CWORD": typed[-1] if shell == "fish" else str(len(typed)),
        **changes,
    }
    result = CliRunner(env=environment).invoke(cli, [], prog_name="tiresias-slurm")
    assert result.exit_code == 0 and result.stderr == "", result.stderr
    return result.stdout.splitlines()


def words(site: Site, *typed: str) -> list[str]:
    return [line.partition(",")[2] for line in offered(site, *typed) if line]


@pytest.mark.parametrize("command", ["explain", "history"])
def test_a_job_is_completed_from_what_was_published(site: Site, command: str) -> None:
    site.publish(busy_state())
    assert words(site, command, "4071") == ["40712", "40718_3"]
    assert words(site, command, "9") == []


def test_lists_are_completed_at_their_last_word(site: Site) -> None:
    site.publish(busy_state())
    assert words(site, "status", "-j", "1,4073") == ["1,40731", "1,40735"]
    assert words(site, "status", "-u", "alice,w") == ["alice,wei"]
    assert words(site, "status", "-p", "") == ["gpu"]
    assert words(site, "status", "--tier", "") == ["0", "1", "2"]
    assert words(site, "status", "-t", "pending,run") == ["PENDING,RUNNING"]
    assert words(site, "status", "-o", "JOBID,pa") == ["JOBID,PARTITION"]
    assert words(site, "status", "-o", "+acc") == ["+ACCOUNT"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_offers_the_same_jobs(site: Site, shell: str) -> None:
    site.publish(state(running("12", name="it\nis\x1b[2J", user="bob")))
    said = "\n".join(offered(site, "explain", "1", shell=shell))
    assert "12" in said
    assert all(line.isprintable() for line in said.replace("\t", " ").split("\n"))
    assert ("R it?is?[2J of bob" in said) is (shell != "bash")


def test_offered_words_contain_no_shell_metacharacters(site: Site) -> None:
    site.publish(
        state(*(running(str(n), user=u) for n, u in enumerate(("a b", "*", "$(x)", "-o"))))
    )
    assert words(site, "status", "-u", "") == []


def test_without_a_state_nothing_is_offered_and_nothing_printed(site: Site) -> None:
    assert words(site, "explain", "") == []
    (site.folder / published.FILE_NAME).write_text("{")
    assert words(site, "explain", "") == []
    site.config.write_text("[")
    assert words(site, "explain", "") == []
    site.config.unlink()
    assert words(site, "status", "-j", "") == []


def test_completion_uses_the_configuration_named_on_the_command_line(site: Site) -> None:
    site.publish(busy_state())
    typed = ("--config", str(site.config), "explain", "4071")
    said = offered(site, *typed, TIRESIAS_CONFIG="/nowhere")
    assert said == ["plain,40712", "plain,40718_3"]
