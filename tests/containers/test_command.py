"""scripts/dev containers, as far as it can be tested without an engine."""

from __future__ import annotations

import os

import click
import pytest

from scripts.testbed.debian import machine
from scripts.tools.containers import tools
from scripts.tools.containers.main import suite_is_good


def test_a_run_with_skipped_tests_fails_and_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = {"DOCKER_HOST": "unix:///nonexistent"}
    assert not suite_is_good(nowhere, ("-k", "every_service_is_healthy", "-p", "no:cacheprovider"))
    said = capfd.readouterr().err
    assert "1 skipped: " in said and "no Docker engine can be reached" in said


def test_a_run_without_tests_fails() -> None:
    assert not suite_is_good({}, ("-k", "no_such_test", "-p", "no:cacheprovider"))


def test_only_root_can_start_a_private_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(click.ClickException, match="Run it as root"):
        machine.get_ready(tools.needed())
