"""The containers of docker-compose.yml in a Docker engine, and operations on them for tests."""

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
from scripts.testbed.patience import wait_until
from scripts.tools.containers.image import base_image
from scripts.tools.containers.tools import compose_command

PATIENCE_S = 180.0
COMPOSE_PATIENCE_S = 1200.0
"""Time for building the image and fetching its packages, if needed."""
LABEL = "com.docker.compose"
SERVICES = ("mariadb", "slurmdbd", "slurmctld", "n1", "n2", "n3", "n4", "controller", "login")


class UnavailableError(Exception):
    """The containers cannot be started on this machine; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Composed:
    """The services of docker-compose.yml, started under their own project name."""

    client: docker.DockerClient
    compose: tuple[str, ...]
    project: str

    def run(self, *arguments: str) -> str:
        """Call compose; return its output."""
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
        """Return all containers by service, running or not."""
        found = self.client.containers.list(all=True, filters=self.ours)
        return {one.labels[f"{LABEL}.service"]: one for one in found}

    @property
    def ours(self) -> Mapping[str, list[str]]:
        """The filter for the engine's lists: objects that belong to this project."""
        return {"label": [f"{LABEL}.project={self.project}"]}

    def __getitem__(self, service: str) -> Container:
        labels = [*self.ours["label"], f"{LABEL}.service={service}"]
        (found,) = self.client.containers.list(all=True, filters={"label": labels})
        return found

    def ask(self, service: str, *words: str, user: str = "") -> tuple[int, str]:
        """Run a command in a container; return its exit code and output."""
        home = f"/home/{user}" if user else None
        code, output = self[service].exec_run(list(words), user=user, workdir=home)
        return int(code), output.decode(errors="replace")

    def tell(self, service: str, *words: str, user: str = "") -> str:
        """Run a command that must succeed; return its output."""
        code, text = self.ask(service, *words, user=user)
        assert code == 0, f"{service}: {' '.join(words)} ended with {code}:\n{text}"
        return text

    def as_alice(self, *words: str) -> str:
        """Run a command in the container in which users work."""
        return self.tell("login", *words, user="alice")

    def submit(self, *words: str, user: str = "alice") -> str:
        """Submit a job as a user; return its id."""
        return self.tell("login", "sbatch", "--parsable", *words, user=user).strip()

    def job(self, job_id: str) -> Mapping[str, Any]:
        """Return the job as the controller sees it; empty if it does not see it."""
        code, text = self.ask("login", "tiresias-slurm", "status", "--json", "-j", job_id)
        jobs: list[dict[str, Any]] = json.loads(text)["jobs"] if code == 0 else []
        return jobs[0] if jobs else {}

    def health(self, service: str) -> str:
        """Return Docker's state of the service: starting, healthy, unhealthy, exited and so on."""
        state = self[service].attrs["State"]
        return str(state["Health"]["Status"] if state["Running"] else state["Status"])

    def wait_until_healthy(self, *services: str) -> None:
        for service in services or SERVICES:
            self.wait_for_health(service, "healthy")

    def wait_for_health(self, service: str, wanted: str) -> None:
        wait_until(lambda: self.health(service) == wanted, f"{service} is {wanted}", PATIENCE_S)

    def last_words(self) -> str:
        """Return the end of each container's log, to diagnose a failure."""
        return "\n".join(
            f"== {service}: {one.status}\n{one.logs(tail=15).decode(errors='replace')}"
            for service, one in self.containers().items()
        )

    def left_over(self) -> list[str]:
        """Return the objects of the project that still exist."""
        networks = self.client.networks.list(filters=self.ours)
        volumes = self.client.volumes.list(filters=self.ours)
        return [*self.containers(), *(one.name for one in (*networks, *volumes))]


@contextmanager
def composed() -> Iterator[Composed]:
    """Start all services, and stop them afterwards; ``UnavailableError`` if that is impossible."""
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
    """Connect to the engine in DOCKER_HOST, or to this machine's."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise UnavailableError(f"no Docker engine can be reached: {error}") from error
    return client


def with_base(client: docker.DockerClient) -> None:
    """Pull the base image of the Dockerfile unless it exists."""
    name = base_image()
    try:
        client.images.get(name)
    except ImageNotFound:
        try:
            client.images.pull(name)
        except DockerException as error:
            raise UnavailableError(f"the engine cannot get the image {name}: {error}") from error
