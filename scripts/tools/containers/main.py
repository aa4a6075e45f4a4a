"""The command line of the container tests, and their steps from an unprepared machine to the
result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import docker
from docker.errors import DockerException, ImageNotFound

from scripts import ROOT
from scripts.testbed.debian import machine
from scripts.testbed.debian.root import base_root, cache_option
from scripts.tools.containers import engine, image, tools
from scripts.tools.matrix.suite import read_report
from scripts.tools.stopping import stop_in_order

EXPECTED_ERRORS = (
    engine.EngineError,
    image.ImageError,
    DockerException,
)


@click.command(context_settings={"ignore_unknown_options": True})
@cache_option("roots")
@click.argument("pytest", nargs=-1, type=click.UNPROCESSED)
def containers(cache: Path, pytest: Sequence[str]) -> None:
    """Bring docker-compose.yml up on a Docker engine, and test it. Arguments go to pytest.

    If no engine runs, Debian's is installed and started for this run only, in its own namespaces.
    Its Debian image is made by debootstrap from this machine's mirror; no registry is contacted.
    The root and the images are kept in --cache; everything else is removed afterwards.
    """
    stop_in_order()
    began_s = time.monotonic()
    try:
        good = _run(cache, pytest)
    except EXPECTED_ERRORS as error:
        raise click.ClickException(str(error)) from error
    _say(f"{'the containers do as they should' if good else 'FAILED'}: {_since(began_s)}")
    sys.exit(not good)


def _run(cache: Path, pytest: Sequence[str]) -> bool:
    if _is_reachable():
        _say("the Docker engine of this machine")
        return suite_is_good({}, pytest)
    machine.get_ready(tools.needed())
    with machine.alone_with(cache / "containers.lock", _say):
        return _on_own_engine(cache, pytest)


def _is_reachable() -> bool:
    try:
        return bool(docker.from_env().ping())
    except DockerException:
        return False


def _on_own_engine(cache: Path, pytest: Sequence[str]) -> bool:
    images = cache / "containers"
    with engine.running(images, cut_off=False) as own:
        _make_image(own.client, cache)
    # From here on nothing is downloaded, and the engine has its own network.
    with engine.running(images, cut_off=True) as own:
        # Every engine has the classic builder, and it finds the image made before.
        return suite_is_good({"DOCKER_HOST": own.address, "DOCKER_BUILDKIT": "0"}, pytest)


def _make_image(client: docker.DockerClient, cache: Path) -> None:
    try:
        client.images.get(image.base_image())
    except ImageNotFound:
        with _step(f"Debian {image.BASE_SUITE}, as {image.base_image()}"):
            image.import_base(client, base_root(image.BASE_SUITE, cache))
    proxies = {
        name: value
        for name, value in machine.fetching_environment().items()
        if name.lower().endswith("_proxy")
    }
    with _step("the image"):
        for step in image.build(client, proxies):
            _say(f"  {' '.join(step.split())[:80]}")


def suite_is_good(environment: dict[str, str], pytest: Sequence[str]) -> bool:
    """Run the tests; return whether there were some, all passed and none was skipped."""
    with tempfile.TemporaryDirectory() as folder, _step("the tests"):
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-v", "-m", "containers", f"--junitxml={report}"]
        ended = subprocess.run(
            [*command, "tests/containers", *pytest],
            cwd=ROOT,
            env={**os.environ, **environment},
            check=False,
        )
        if not report.exists():
            return False
        _, _, skipped = read_report(report)
    for reason, count in skipped:
        _say(f"{count} skipped: {reason}")
    return ended.returncode == 0 and not skipped


@contextmanager
def _step(name: str) -> Iterator[None]:
    began_s = time.monotonic()
    _say(name)
    yield
    _say(f"  done in {_since(began_s)}")


def _since(began_s: float) -> str:
    return f"{time.monotonic() - began_s:.0f} s"


def _say(text: str) -> None:
    print(f"containers: {text}", file=sys.stderr, flush=True)
