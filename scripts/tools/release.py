"""Build a release, check it, and write its page: what `scripts/dev release` does."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from scripts import ROOT
from scripts.tools.lock import LOCK
from slurm_tiresias import __version__

NAME = "slurm-tiresias"
SBOM, CHECKSUMS, PAGE = f"{NAME}-{__version__}.cdx.json", "SHA256SUMS", "RELEASE.md"


class ReleaseError(click.ClickException):
    """Something that a release must not have."""


@click.command()
@click.option("--into", type=click.Path(path_type=Path), default=ROOT / "dist", show_default=True)
def release(into: Path) -> None:
    """Build the last commit twice, compare and install the files, and write a page for the release.

    The folder gets the wheels, the Debian packages, an SBOM (CycloneDX), SHA256SUMS and RELEASE.md,
    whose notes are those of CHANGELOG.md. Needs what scripts/package needs, and fetches the locked
    requirements with pip.
    """
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(), __version__)
    with tempfile.TemporaryDirectory() as again:
        for folder in (into, Path(again)):
            build(folder.resolve())
        built = [into / path.name for path in sorted(Path(again).iterdir())]
        different = [path.name for path in built if digest(path) != digest(Path(again) / path.name)]
    if different:
        raise ReleaseError(f"two builds differ in {', '.join(different)}")
    for wheel in (path for path in built if path.suffix == ".whl"):
        install(wheel)
    (into / SBOM).write_text(json.dumps(sbom(LOCK.read_text(), committed()), indent=2) + "\n")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in [*built, into / SBOM])
    (into / CHECKSUMS).write_text(sums)
    (into / PAGE).write_text(page(notes, sums))
    click.echo(f"{into / PAGE}: version {__version__}, {len(built) + 1} files, built twice alike")


def build(into: Path) -> None:
    """Build the last commit, whose time its files have, in a folder of its own."""
    with tempfile.TemporaryDirectory() as source:
        archive = ["git", "-C", str(ROOT), "archive", "HEAD"]
        files = subprocess.run(archive, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", source], input=files, check=True)
        run(f"{source}/scripts/package", "--into", str(into))


def notes_of(changelog: str, version: str) -> str:
    """Return the notes of a version; fail unless it has a date."""
    found = re.search(
        rf"^## \[{re.escape(version)}\] - (\S+)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if found is None or not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise ReleaseError(f"CHANGELOG.md has no version {version} with a date")
    return found[2].strip()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def install(wheel: Path) -> None:
    """Install a wheel into a new environment, the controller's with its locked requirements."""
    is_library = wheel.name.startswith("slurm_tiresias_job")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        pip = (f"{folder}/bin/pip", "--quiet", "--disable-pip-version-check", "install")
        if not is_library:
            run(*pip, "--require-hashes", "-r", str(LOCK))
        run(*pip, "--no-deps", "--no-index", str(wheel))
        if is_library:
            program = "from slurm_tiresias import job; print(*job.steps(3, lambda step: None))"
            run(f"{folder}/bin/python", "-c", program)
        else:
            run(f"{folder}/bin/pip", "check")
            jobs = ("--workload", "philly-like:100", "--cluster", "4x8")
            run(f"{folder}/bin/tiresias-slurm", "simulate", *jobs)


def run(*command: str) -> None:
    ended = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last = "\n".join((ended.stderr or ended.stdout).splitlines()[-20:])
        raise ReleaseError(f"{' '.join(command)} ended with {ended.returncode}:\n{last}")


def committed() -> str:
    """Return the time of the last change, by which the packages are dated, too."""
    command = ["git", "log", "-1", "--format=%ct"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return datetime.fromtimestamp(int(answer.stdout), UTC).isoformat().replace("+00:00", "Z")


def sbom(lock: str, at: str) -> dict[str, Any]:
    """Return the bill of materials in CycloneDX 1.5: what the lock file has pip install."""
    locked = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.M)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": at,
            "component": component(NAME, __version__, "application")
            | {"licenses": [{"license": {"id": "MIT"}}]},
        },
        "components": [component(name, version, "library") for name, version in locked],
        "dependencies": [
            {
                "ref": purl(NAME, __version__),
                "dependsOn": sorted({purl(name, version) for name, version in locked}),
            }
        ],
    }


def component(name: str, version: str, kind: str) -> dict[str, Any]:
    same = purl(name, version)
    return {"type": kind, "bom-ref": same, "name": name, "version": version, "purl": same}


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def page(notes: str, sums: str) -> str:
    return (
        f"# slurm-tiresias {__version__}\n\n{notes}\n\n## Files\n\nSHA-256; check them with "
        f"`sha256sum -c {CHECKSUMS}`. Two builds of the tagged commit by `scripts/package`, on the "
        f"same release of Debian, have the same bytes.\n\n```text\n{sums}```\n\n"
        "[Install](docs/how-to/install.md), [security policy](SECURITY.md).\n"
    )
