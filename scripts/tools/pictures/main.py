"""The commands that draw the pictures in docs/images."""

from __future__ import annotations

import json

import click

from scripts import ROOT

IMAGES = ROOT / "docs" / "images"


@click.group()
def pictures() -> None:
    """Draw the pictures in docs/images, each for light and for dark pages."""


@pictures.command()
def dark() -> None:
    """Make the diagrams for dark pages from those for light ones, which are drawn by hand."""
    from scripts.tools.pictures.svg import dark

    for path in IMAGES.glob("*-light.svg"):
        _write(path.name.replace("-light", "-dark"), dark(path.read_text()).encode())


@pictures.command()
@click.pass_context
def results(context: click.Context) -> None:
    """Simulate the paper's 480 jobs under the best baseline and with Tiresias, and draw both.

    Takes about a minute. The figures go into results.json beside the pictures.
    """
    from scripts.tools.pictures.results import drawn, measured

    found = measured()
    _write("results.json", (json.dumps(found) + "\n").encode())
    _write("results-light.svg", drawn(found).encode())
    context.invoke(dark)


@pictures.command()
def page() -> None:
    """Start a cluster with a controller and jobs, and photograph the live page.

    Takes about four minutes, and needs Chromium (apt-get install chromium).
    """
    from scripts.tools.pictures.live_page import photographs

    for name, image in photographs():
        _write(name, image)


def _write(name: str, content: bytes) -> None:
    (IMAGES / name).write_bytes(content)
    print(f"docs/images/{name}: {len(content) / 1000:.0f} kB")
