"""The commands that draw the pictures in docs/images."""

from __future__ import annotations

from pathlib import Path

import click

from scripts import ROOT

IMAGES = ROOT / "docs" / "images"


@click.group()
def pictures() -> None:
    """Draw the pictures in docs/images, each for light and for dark pages."""


@pictures.command()
def diagrams() -> None:
    """Draw the diagrams of the cycle, the state machines and the tiers; takes no time."""
    from scripts.tools.pictures.diagrams import files

    for name, text in files().items():
        _write(name, text)


@pictures.command()
def results() -> None:
    """Simulate the paper's 480 jobs under the best baseline and with Tiresias, and draw both.

    Takes about a minute. The figures go into results.json beside the pictures.
    """
    from scripts.tools.pictures.results import drawn, measured, text_of

    found = measured()
    _write("results.json", text_of(found))
    for name, text in drawn(found).items():
        _write(name, text)


@pictures.command()
def page() -> None:
    """Start a cluster with a controller and jobs, and photograph the live page.

    Takes about two minutes, and needs Chromium (apt-get install chromium).
    """
    from scripts.tools.pictures.live_page import photographs

    for name, image in photographs():
        path = IMAGES / name
        path.write_bytes(image)
        print(_shown(path))


def _write(name: str, text: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / name
    path.write_text(text, encoding="utf-8")
    print(_shown(path))


def _shown(path: Path) -> str:
    return f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB"
