"""Optional libraries that only some commands need, and how to install them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from slurm_tiresias.errors import TiresiasError

DEBIANS_FOLDER = Path("/usr/lib/python3/dist-packages")
"""Where Debian's package installs this program. pip refuses to install libraries there."""


@dataclass(frozen=True, slots=True)
class Library:
    """Where a library comes from. ``debian`` is "" if Debian has no package of it."""

    extra: str
    debian: str = ""


LIBRARIES: Mapping[str, Library] = {
    "pandas": Library("report", "python3-pandas"),
    "matplotlib": Library("report", "python3-matplotlib"),
    "jinja2": Library("report", "python3-jinja2"),
    "prometheus_client": Library("metrics", "python3-prometheus-client"),
    "submitit": Library("tune"),
}


def check_installed(what: str, libraries: Sequence[str]) -> None:
    """Raise ``TiresiasError`` unless all these libraries are installed.

    ``what`` begins the message, for example "the report needs". The libraries are not imported,
    which takes half a second, so that other errors are reported sooner.
    """
    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        are = "is" if len(missing) == 1 else "are"
        raise TiresiasError(
            f"{what} {names}, which {are} not installed", f"Do: {how_to_install(missing)}"
        )


def how_to_install(libraries: Sequence[str], program: Path = Path(__file__)) -> str:
    """Return the command that installs these libraries; ``program`` is a file of this package."""
    needed = [LIBRARIES[library] for library in libraries]
    extras = ",".join(sorted({library.extra for library in needed}))
    pip = f"pip install 'slurm-tiresias[{extras}]'"
    if not program.is_relative_to(DEBIANS_FOLDER):
        return pip
    if all(library.debian for library in needed):
        return f"apt install {' '.join(library.debian for library in needed)}"
    return f"{pip} in a virtual environment, for Debian has no package of it"
