"""The image of docker-compose.yml, and its base image."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker

from scripts import ROOT

DOCKERFILE = ROOT / "containers" / "Dockerfile"
IMAGE = "slurm-tiresias"
BASE_SUITE = "bookworm"
"""The Debian release of ``base_image``."""
LEFT_OUT = ("./dev/*", "./proc/*", "./sys/*", "./var/cache/apt/*", "./var/lib/apt/lists/*")


class ImageError(Exception):
    """The image could not be built; the text has the last output."""


def base_image() -> str:
    """Return the base image of containers/Dockerfile."""
    (name,) = re.findall(r"^FROM (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    return str(name)


def import_base(client: docker.DockerClient, folder: Path) -> None:
    """Import a Debian root as an image, under the name that the Dockerfile starts from."""
    repository, _, tag = base_image().partition(":")
    leaving_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    command = ["tar", "--create", "--numeric-owner", *leaving_out, f"--directory={folder}", "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        client.api.import_image_from_stream(tar.stdout, repository=repository, tag=tag)
    if tar.returncode != 0:
        raise ImageError(f"tar ended with {tar.returncode}")


def build(client: docker.DockerClient, proxies: Mapping[str, str]) -> Iterator[str]:
    """Build the image with this machine's network; yield each step as it begins."""
    said: list[str] = []
    for entry in client.api.build(
        path=str(ROOT),
        dockerfile=str(DOCKERFILE.relative_to(ROOT)),
        tag=IMAGE,
        network_mode="host",
        buildargs=dict(proxies),
        rm=True,
        forcerm=True,
        decode=True,
    ):
        text = str(entry.get("stream", ""))
        said.append(text)
        if "error" in entry:
            raise ImageError("".join(said[-20:]) + str(entry["error"]))
        if text.startswith("Step "):
            yield text.strip()
