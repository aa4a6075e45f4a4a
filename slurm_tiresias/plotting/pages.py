"""The templates of pages, and the filters that these use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_tiresias.gpu_hours import hours
from slurm_tiresias.plotting import spans

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(package: str) -> Environment:
    """The templates of a package, which may extend this package's ``page.html.j2``."""
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
    """The text without characters that hide, or turn around what stands beside them."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _times(multiple: float | None) -> str:
    return "-" if multiple is None else f"{multiple:.2f}"
