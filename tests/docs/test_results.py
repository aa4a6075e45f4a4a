"""The picture of the results shows what the simulator gives."""

from __future__ import annotations

import json

import pytest

from scripts.tools.pictures.main import IMAGES
from scripts.tools.pictures.results import drawn, measured, text_of

FILE = IMAGES / "results.json"


@pytest.mark.long
def test_the_figures_are_those_of_the_simulator() -> None:
    assert FILE.read_text() == text_of(measured()), "run scripts/dev pictures results"


def test_the_picture_shows_these_figures() -> None:
    for name, text in drawn(json.loads(FILE.read_text())).items():
        assert (IMAGES / name).read_text() == text, "run scripts/dev pictures results"
