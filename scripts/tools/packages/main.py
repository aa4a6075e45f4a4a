"""The command line of the package test, and its steps from a clean Debian to the last check."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.debian import machine
from scripts.testbed.debian.root import (
    base_root,
    booted,
    cache_option,
    copy_of,
    copy_of_checkout,
    host_suite,
    used,
)
from scripts.tools.packages import readme_test
from scripts.tools.packages.package_test import TRIALS, Packages

LATER = "99.1"
"""A version above all existing ones, to upgrade to."""


@click.command()
@click.option("--suite", default=host_suite, help="The release of Debian. Default: this machine's.")
@click.option("--build-only", is_flag=True, help="Only leave the packages in dist/SUITE.")
@click.option("--readme", is_flag=True, help="Follow README.md and docs/how-to/install.md instead.")
@cache_option("roots")
def packages(suite: str, build_only: bool, readme: bool, cache: Path) -> None:
    """Build the packages and test them as an administrator would use them: on a clean, booted
    Debian.

    The test installs them with apt-get in its own namespaces, checks that nothing was started,
    reads the manual, presses TAB in three shells, runs the service on a real Slurm, upgrades it and
    purges it. Needs root.
    """
    machine.get_ready()
    archives = cache / "archives" / suite
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    with step(f"a clean Debian {suite}"):
        base = base_root(suite, cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix="try-") as folder:
        if readme:
            follow_readme(base, Path(folder), archives)
        else:
            try_packages(base, Path(folder), archives, build_only)


@contextmanager
def step(name: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"== {name}", flush=True)
    yield
    print(f"== {name}: ok, {time.monotonic() - began:.1f} s", flush=True)


def build(folder: Path, archives: Path) -> tuple[Packages, Packages]:
    """Build packages of this version and a later one, in a root with only their dependencies."""
    copy_of_checkout(folder / "src")
    with used(folder, archives) as root:
        root.apt_get("update")
        root.run("/src/scripts/package", "--into", "dist/now")
        root.run("/src/scripts/package", "--into", "dist/later", "--version", LATER)
        root.apt_get("install", "--no-install-recommends", "lintian")
        unknown_host = "bogus-mail-host,bogus-mail-host-in-debian-changelog"
        root.run(
            *("lintian", "--allow-root", "--fail-on", "error", "--suppress-tags", unknown_host),
            *sorted(f"/{path.relative_to(folder)}" for path in folder.glob("src/dist/now/*.deb")),
        )
    dist = folder / "src" / "dist"
    return Packages(dist / "now"), Packages(dist / "later")


def try_packages(base: Path, folder: Path, archives: Path, build_only: bool) -> None:
    builder, site = folder / "build", folder / "site"
    with step("build, in a root with nothing but what the packages ask for"):
        now, later = build(copy_of(base, builder), archives)
    if build_only:
        shutil.copytree(now.folder, ROOT / "dist" / base.name, dirs_exist_ok=True)
        return
    with step("a machine to install them on"):
        prepare(copy_of(base, site), archives)
        shutil.copytree(now.folder, site / "now")
        shutil.copytree(later.folder, site / "later")
    with booted(site, archives) as root:
        for trial in TRIALS:
            with step(" ".join((trial.__doc__ or "").split()).rstrip(".")):
                trial(root, now, later)
    print("the packages pass all checks")


def follow_readme(base: Path, folder: Path, archives: Path) -> None:
    prepare(copy_of(base, folder / "new"), archives)
    with booted(folder / "new", archives) as root:
        for trial in readme_test.TRIALS:
            with step(" ".join((trial.__doc__ or "").split()).rstrip(".")):
                trial(root)


def prepare(folder: Path, archives: Path) -> None:
    """Install what a machine with services has, but nothing that the packages must install
    themselves, and lay the checkout there."""
    with used(folder, archives) as root:
        root.apt_get("update")
        root.apt_get("install", "--no-install-recommends", "systemd")
    copy_of_checkout(folder / "src")
