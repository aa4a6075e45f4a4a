"""The templates of pages, and the filters that they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_tiresias.gpu_hours import hours
from slurm_tiresias.plotting import spans

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(package: str) -> Environment:
    """Return the templates of a package; they may extend this package's ``page.html.j2``."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("slurm_tiresias.plotting")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"visible": visible, "span": spans.span, "hours": hours, "times": _times}
    return found


def visible(text: str) -> str:
    """Replace unprintable characters, including those that hide or reorder adjacent text."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _times(multiple: float | None) -> str:
    return "-" if multiple is None else f"{multiple:.2f}"
