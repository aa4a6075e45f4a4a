"""etc/requirements.lock, which fixes the versions and hashes that pip installs."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "etc" / "requirements.lock"
EXTRAS = ("report", "tune", "metrics", "gpu")

PLATFORMS = [
    {
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.4",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    for minor in (11, 12, 13)
    for machine in ("x86_64", "aarch64")
]


def locked() -> list[tuple[Requirement, list[str]]]:
    """Return each requirement of the lock with its hashes; the file may contain nothing else."""
    text = re.sub(r"^#.*\n", "", LOCK.read_text(), flags=re.MULTILINE)
    entries = text.replace("\\\n", "").splitlines()
    found = []
    for entry in entries:
        match = re.fullmatch(
            r"([\w-]+==[\w.]+(?: ; [^-]+?)?)((?: +--hash=sha256:[0-9a-f]{64})+)", entry
        )
        assert match is not None, entry
        found.append((Requirement(match[1].strip()), match[2].split()))
    return found


def required() -> Iterator[Requirement]:
    """The requirements in setup.cfg for an installation, and in pyproject.toml for building the
    package."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = (setup["options.extras_require"][extra] for extra in EXTRAS)
    for listed in (setup["options"]["install_requires"], *extras):
        yield from map(Requirement, listed.split("\n")[1:])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    yield from map(Requirement, project["build-system"]["requires"])


@pytest.mark.parametrize(
    "platform", PLATFORMS, ids=lambda here: f"{here['python_version']}-{here['platform_machine']}"
)
def test_each_requirement_is_locked_once_and_in_its_range(platform: dict[str, str]) -> None:
    here = [one for one, _ in locked() if one.marker is None or one.marker.evaluate(platform)]
    versions = {canonicalize_name(one.name): one.specifier for one in here}
    assert len(versions) == len(here)
    for wanted in required():
        (pin,) = versions[canonicalize_name(wanted.name)]
        assert pin.operator == "=="
        assert wanted.specifier.contains(pin.version), f"{wanted}: {pin}. Run scripts/dev lock"


def test_compiled_packages_are_locked_with_hashes_for_all_platforms() -> None:
    """One hash for the source, and one for each Python and machine; a pure package has two."""
    hashes = {one.name: len(found) for one, found in locked()}
    assert min(hashes.values()) >= 1
    assert hashes["numpy"] > 2 * 2 and hashes["orjson"] > 3 * 2
