"""The command that builds the documentation as a website."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from scripts import ROOT

SITE = Path(__file__).parent / "site"


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=ROOT / "dist" / "site",
    help="The folder for the site. Default: dist/site.",
)
def docs(out: Path) -> None:
    """Build the documentation as a website, with a search that needs no server.

    Open index.html in the folder. A warning, such as a link that leads nowhere, is an error.
    """
    build(out)
    print(out / "index.html")


def build(out: Path, source: Path = ROOT) -> None:
    """Build the site into a folder from the pages in ``source``.

    Raises
    ------
    SystemExit
        If anything is wrong with a page; what it is goes to standard error.
    """
    from sphinx.cmd.build import main

    if (out / "objects.inv").exists():
        shutil.rmtree(out)  # Pages that are no more would stay in a site that was built before.
    elif out.exists() and any(out.iterdir()):
        raise click.ClickException(f"{out} holds other files. Name an empty folder by --out.")
    with tempfile.TemporaryDirectory() as parsed:
        options = ("-b", "html", "-c", str(SITE), "-d", parsed, "-E", "-q", "-W", "--keep-going")
        if status := main([*options, str(source), str(out)]):
            sys.exit(status)
