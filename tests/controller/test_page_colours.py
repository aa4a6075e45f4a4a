"""The colours of the page for all kinds of colour vision, computed from its style sheet."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

Colour = npt.NDArray[np.float64]

ROOT = Path(__file__).parents[2]
SHEET = ROOT / "slurm_tiresias" / "web" / "page" / "static" / "page.css"
LIGHT, DARK = SHEET.read_text().split("@media (prefers-color-scheme: dark)")[:2]
SIGNS = ("#0d1117", "#ffffff")
"""The colours in which the number of a tier is written on its own colour, whichever has more
contrast."""

EYES = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green cones": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue cones": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
"""Transform linear RGB into what colour-blind people see: Machado, Oliveira and Fernandes 2009, at
full severity."""

TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])

schemes = pytest.mark.parametrize("sheet", [LIGHT, DARK], ids=["light", "dark"])


def named(sheet: str, name: str) -> str:
    found = re.search(rf"--{name}: (#[0-9a-f]{{6}});", sheet)
    assert found, name
    return found[1]


def tiers(sheet: str) -> list[str]:
    return [named(sheet, f"tier-{tier}") for tier in range(8)]


def linear(colour: str) -> Colour:
    shares = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The contrast as WCAG defines it, from 1 to 21."""
    dark, light = sorted(float(linear(colour) @ TO_XYZ[1]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, eyes: Colour) -> Colour:
    """CIE L*a*b*, in which distances are perceived differences."""
    share = TO_XYZ @ np.clip(eyes @ linear(colour), 0, 1) / WHITE
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@schemes
@pytest.mark.parametrize("eyes", EYES)
def test_all_tiers_are_distinguishable_also_with_colour_blindness(sheet: str, eyes: str) -> None:
    seen = [lab(colour, EYES[eyes]) for colour in tiers(sheet)]
    distances = {
        (one, other): float(np.linalg.norm(seen[one] - seen[other]))
        for one, other in combinations(range(8), 2)
    }
    assert min(distances.values()) > 18, min(distances, key=distances.__getitem__)


@schemes
def test_every_chart_mark_contrasts_with_its_background(sheet: str) -> None:
    surface = named(sheet, "surface")
    for colour in [*tiers(sheet), *(named(sheet, name) for name in ("other", "idle", "down"))]:
        assert contrast(colour, surface) >= 3, colour


@schemes
def test_the_number_of_a_tier_can_be_read_on_its_colour(sheet: str) -> None:
    for colour in tiers(sheet):
        assert max(contrast(colour, sign) for sign in SIGNS) >= 4.5, colour


@schemes
def test_every_text_can_be_read(sheet: str) -> None:
    for ground in ("surface", "ground"):
        for name in ("ink", "quiet", "accent", "good", "warning"):
            assert contrast(named(sheet, name), named(sheet, ground)) >= 4.5, (name, ground)
    assert contrast(named(sheet, "alarm"), named(sheet, "alarm-ground")) >= 4.5
