"""Build a release, check it, and write its page: what `scripts/dev release` does."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from scripts import ROOT
from scripts.tools.lock import LOCK
from slurm_tiresias import __version__

NAME = "slurm-tiresias"
Licences = list[dict[str, Any]]
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
    licences: dict[str, Licences] = {}
    for wheel in (path for path in built if path.suffix == ".whl"):
        licences |= install(wheel)
    bill = sbom(LOCK.read_text(), committed(), licences)
    (into / SBOM).write_text(json.dumps(bill, indent=2) + "\n")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in [*built, into / SBOM])
    (into / CHECKSUMS).write_text(sums)
    (into / PAGE).write_text(page(notes, sums, source()))
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


def install(wheel: Path) -> dict[str, Licences]:
    """Install a wheel into a new environment, the controller's with its locked requirements.

    Returns the licences of all that is installed there.
    """
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
        packages = [str(path) for path in Path(folder).glob("lib/*/site-packages")]
        installed = metadata.distributions(path=packages)
        return {purl(one.name, one.version): licences_of(one.metadata) for one in installed}


def licences_of(package: metadata.PackageMetadata) -> Licences:
    """Return the licences of a package in CycloneDX; older ones have the text where others have
    the name."""
    if "License-Expression" in package:
        return [{"expression": package["License-Expression"]}]
    classes = [one for one in package.get_all("Classifier", []) if one.startswith("License ::")]
    names = [one.strip() for one in package.get_all("License", [])]
    if not "".join(names) or "\n" in names[0]:
        names = [one.split(" :: ")[-1] for one in classes]
    return [{"license": {"name": name}} for name in names]


def run(*command: str) -> None:
    ended = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last = "\n".join((ended.stderr or ended.stdout).splitlines()[-20:])
        raise ReleaseError(f"{' '.join(command)} ended with {ended.returncode}:\n{last}")


def committed() -> str:
    """Return the time of the last change, by which the packages are dated, too."""
    seconds = int(git("log", "-1", "--format=%ct"))
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def source() -> str:
    """Name the tag of the last commit, or the commit if it has none."""
    tags = git("tag", "--points-at", "HEAD").split()
    return f"tag {tags[0]}" if tags else f"commit {git('rev-parse', 'HEAD')}"


def git(*arguments: str) -> str:
    command = ["git", *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def sbom(lock: str, at: str, licences: Mapping[str, Licences]) -> dict[str, Any]:
    """Return the bill of materials in CycloneDX 1.5: what the lock file has pip install.

    ``licences`` by purl, as far as known.
    """
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*(?:\n +--hash.*)*)", lock, re.M)
    libraries = [
        component(name, version, "library")
        | ({"licenses": known} if (known := licences.get(purl(name, version))) else {})
        | {"externalReferences": [files_of(purl(name, version), rest)]}
        for name, version, rest in found
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": at,
            "component": component(NAME, __version__, "application")
            | {"licenses": [{"license": {"id": "MIT"}}]},
        },
        "components": libraries,
        "dependencies": [
            {
                "ref": purl(NAME, __version__),
                "dependsOn": sorted({library["purl"] for library in libraries}),
            }
        ],
    }


def files_of(package: str, hashes: str) -> dict[str, Any]:
    """Return the reference to the files that pip may install for a package."""
    contents = re.findall(r"--hash=sha256:(\w+)", hashes)
    known = [{"alg": "SHA-256", "content": content} for content in contents]
    return {"type": "distribution", "url": package, "hashes": known}


def component(name: str, version: str, kind: str) -> dict[str, Any]:
    same = purl(name, version)
    return {"type": kind, "bom-ref": same, "name": name, "version": version, "purl": same}


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def page(notes: str, sums: str, source: str) -> str:
    return (
        f"# slurm-tiresias {__version__}\n\n{notes}\n\n## Files\n\nSHA-256; check them with "
        f"`sha256sum -c {CHECKSUMS}`. Two builds of {source} by `scripts/package`, on the "
        f"same release of Debian, have the same bytes.\n\n```text\n{sums}```\n\n"
        "[Install](docs/how-to/install.md), [security policy](SECURITY.md).\n"
    )
