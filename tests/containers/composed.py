"""The containers of docker-compose.yml in a Docker engine, and what tests ask of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound
from docker.models.containers import Container

from scripts import ROOT
from scripts.testbed.slurm_faults import wait_until
from scripts.tools.containers.image import base_image
from scripts.tools.containers.tools import compose_command

PATIENCE_S = 180.0
COMPOSE_PATIENCE_S = 1200.0
"""The image may have to be built, and its packages fetched."""
LABEL = "com.docker.compose"
SERVICES = ("mariadb", "slurmdbd", "slurmctld", "n1", "n2", "n3", "n4", "controller", "login")


class UnavailableError(Exception):
    """The containers cannot be brought up on this machine; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Composed:
    """The services of docker-compose.yml, up under a project name of their own."""

    client: docker.DockerClient
    compose: tuple[str, ...]
    project: str

    def run(self, *arguments: str) -> str:
        """Call compose; what it printed."""
        command = [*self.compose, "--project-name", self.project, *arguments]
        ended = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMPOSE_PATIENCE_S,
        )
        assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout}\n{self.last_words()}"
        return ended.stdout

    def containers(self) -> dict[str, Container]:
        """All of them by service, whether they run or not."""
        found = self.client.containers.list(all=True, filters=self.ours)
        return {one.labels[f"{LABEL}.service"]: one for one in found}

    @property
    def ours(self) -> Mapping[str, list[str]]:
        """What the engine's lists are asked for: what belongs to this project."""
        return {"label": [f"{LABEL}.project={self.project}"]}

    def __getitem__(self, service: str) -> Container:
        labels = [*self.ours["label"], f"{LABEL}.service={service}"]
        (found,) = self.client.containers.list(all=True, filters={"label": labels})
        return found

    def ask(self, service: str, *words: str, user: str = "") -> tuple[int, str]:
        """Run a command in a container; its exit code and all that it printed."""
        home = f"/home/{user}" if user else None
        code, output = self[service].exec_run(list(words), user=user, workdir=home)
        return int(code), output.decode(errors="replace")

    def tell(self, service: str, *words: str, user: str = "") -> str:
        """Run a command that has to succeed; what it printed."""
        code, text = self.ask(service, *words, user=user)
        assert code == 0, f"{service}: {' '.join(words)} ended with {code}:\n{text}"
        return text

    def as_alice(self, *words: str) -> str:
        """Run a command where users sit."""
        return self.tell("login", *words, user="alice")

    def submit(self, *words: str, user: str = "alice") -> str:
        """Submit as a user would; the job's id."""
        return self.tell("login", "sbatch", "--parsable", *words, user=user).strip()

    def job(self, job_id: str) -> Mapping[str, Any]:
        """The job as the controller sees it; empty where it does not."""
        code, text = self.ask("login", "tiresias-slurm", "status", "--json", "-j", job_id)
        jobs: list[dict[str, Any]] = json.loads(text)["jobs"] if code == 0 else []
        return jobs[0] if jobs else {}

    def health(self, service: str) -> str:
        """Docker's word for it: starting, healthy, unhealthy; or exited and the like."""
        state = self[service].attrs["State"]
        return str(state["Health"]["Status"] if state["Running"] else state["Status"])

    def wait_until_healthy(self, *services: str) -> None:
        for service in services or SERVICES:
            self.wait_for_health(service, "healthy")

    def wait_for_health(self, service: str, wanted: str) -> None:
        wait_until(lambda: self.health(service) == wanted, f"{service} is {wanted}", PATIENCE_S)

    def last_words(self) -> str:
        """What each container logged last, for who has to find out what went wrong."""
        return "\n".join(
            f"== {service}: {one.status}\n{one.logs(tail=15).decode(errors='replace')}"
            for service, one in self.containers().items()
        )

    def left_over(self) -> list[str]:
        """What of the project is still there."""
        networks = self.client.networks.list(filters=self.ours)
        volumes = self.client.volumes.list(filters=self.ours)
        return [*self.containers(), *(one.name for one in (*networks, *volumes))]


@contextmanager
def composed() -> Iterator[Composed]:
    """Bring all services up, and down again; ``UnavailableError`` where that cannot be."""
    client = reachable_engine()
    with_base(client)
    compose = compose_command()
    if compose is None:
        raise UnavailableError("neither `docker compose` nor `docker-compose` is installed")
    whole = Composed(client, compose, f"slurm-tiresias-test-{os.getpid()}")
    try:
        whole.run("build")
        whole.run("up", "--detach")
        whole.wait_until_healthy()
        yield whole
    finally:
        whole.run("down", "--volumes", "--timeout", "5")
        client.close()


def reachable_engine() -> docker.DockerClient:
    """The engine that DOCKER_HOST names, or this machine's own."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise UnavailableError(f"no Docker engine can be reached: {error}") from error
    return client


def with_base(client: docker.DockerClient) -> None:
    """Fetch the image that the Dockerfile starts from, unless it is there."""
    name = base_image()
    try:
        client.images.get(name)
    except ImageNotFound:
        try:
            client.images.pull(name)
        except DockerException as error:
            raise UnavailableError(f"the engine cannot get the image {name}: {error}") from error
