"""The picture of the results shows what the simulator gives."""

from __future__ import annotations

import json

import pytest

from scripts.tools.pictures.main import IMAGES
from scripts.tools.pictures.results import drawn, measured

FILE = IMAGES / "results.json"


@pytest.mark.long
def test_the_figures_are_those_of_the_simulator() -> None:
    assert json.loads(FILE.read_text()) == measured(), "run scripts/dev pictures results"


def test_the_picture_shows_these_figures() -> None:
    shown = (IMAGES / "results-light.svg").read_text()
    assert shown == drawn(json.loads(FILE.read_text())), "run scripts/dev pictures results"
