"""How to install a library that only some commands need."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.extras import DEBIANS_FOLDER, LIBRARIES, check_installed, how_to_install

ROOT = Path(__file__).parents[1]
OF_DEBIAN = DEBIANS_FOLDER / "slurm_tiresias" / "extras.py"
OF_PIP = Path("/opt/slurm-tiresias/lib/python3.11/site-packages/slurm_tiresias/extras.py")


@pytest.mark.parametrize(
    ("libraries", "with_pip", "on_debian"),
    [
        (("pandas",), "pip install 'slurm-tiresias[report]'", "apt install python3-pandas"),
        (
            ("pandas", "jinja2"),
            "pip install 'slurm-tiresias[report]'",
            "apt install python3-pandas python3-jinja2",
        ),
        (
            ("prometheus_client",),
            "pip install 'slurm-tiresias[metrics]'",
            "apt install python3-prometheus-client",
        ),
        (
            ("submitit",),
            "pip install 'slurm-tiresias[tune]'",
            "pip install 'slurm-tiresias[tune]' in a virtual environment, for Debian has no "
            "package of it",
        ),
    ],
)
def test_the_install_hint_matches_how_the_program_was_installed(
    libraries: tuple[str, ...], with_pip: str, on_debian: str
) -> None:
    assert how_to_install(libraries, OF_PIP) == with_pip
    assert how_to_install(libraries, OF_DEBIAN) == on_debian


def test_all_missing_libraries_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pandas", "jinja2"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TiresiasError) as raised:
        check_installed("report needs", ("pandas", "json", "jinja2"))
    assert str(raised.value) == (
        "report needs pandas and jinja2, which are not installed. "
        "Do: pip install 'slurm-tiresias[report]'."
    )


def test_the_packages_suggest_what_the_hints_name() -> None:
    control = (ROOT / "debian" / "control").read_text()
    suggested = re.findall(r"^Suggests: ((?:.+,\n +)*.+)$", control, re.MULTILINE)
    names = {name.strip() for each in suggested for name in each.split(",")}
    assert {library.debian for library in LIBRARIES.values() if library.debian} <= names


def test_every_extra_exists_in_setup_cfg() -> None:
    settings = (ROOT / "setup.cfg").read_text()
    for library in LIBRARIES.values():
        assert re.search(rf"^{library.extra} =$", settings, re.MULTILINE), library.extra
