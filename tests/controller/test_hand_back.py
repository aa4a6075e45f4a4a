"""Many writes and a slow slurmctld: what Slurm has answered is recorded, and the next attempt goes
on where the last one stopped. ``hand-back`` also when a job ends meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller import bands, offline
from slurm_tiresias.controller.acting import send
from slurm_tiresias.controller.commands import Commands
from slurm_tiresias.controller.cycle import PAUSED
from slurm_tiresias.controller.instruments import Instruments
from slurm_tiresias.controller.run import Controller
from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Write, WriteFailure
from slurm_tiresias.status.service import Peer, Question
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from tests.slurm.contract import Asked, InMemorySite

JOBS = 20
AT_ONCE = 6
"""How many writes Slurm answers before it is too slow."""

WAITS = Asked(begin_in_s=100_000)
ROOT = Question(Peer(0), "", lambda: False)


class Site:
    """Twenty waiting jobs, and what a controller has made of their priorities."""

    def __init__(self, config: Config) -> None:
        self._write = config.priority.write
        in_memory = InMemorySite()
        self.keys = [in_memory.submit(WAITS) for _ in range(JOBS)]
        self.slurm = in_memory.slurm
        self.cancel = in_memory.cancel

    def ours(self) -> int:
        """The number of jobs whose priority is in a band."""
        seen = self.slurm.observe().jobs
        live = [job for job in seen if job.state is not None]
        return sum(bands.is_in_a_band(job.priority, self._write) for job in live)

    def answers_only_some(self) -> None:
        """Let Slurm answer the next six writes, and then be too slow."""
        self.slurm.breaks_off_after = AT_ONCE


@pytest.fixture(params=["pinned", "site-factor"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    written = {"priority": {"write": request.param}}
    controller = {"mode": "enforce", "state_dir": str(tmp_path), "interval_s": 60.0}
    return parse({**written, "controller": controller})


@pytest.fixture
def site(config: Config) -> Site:
    return Site(config)


@pytest.fixture
def controller(ledger: Ledger, config: Config, site: Site) -> Iterator[Controller]:
    with closing(ProfileStore(None)) as store:
        profiler = Profiler(store, config)
        cluster = site.slurm.cluster()
        yield Controller(site.slurm, cluster, config, ledger, profiler, Instruments())


def cycle(controller: Controller) -> str:
    """Run a cycle; return its error."""
    controller._cycle()
    return controller._state.error


def release(controller: Controller) -> str:
    """Release all jobs; return the error that the command shows."""
    commands = Commands(lambda: None)
    answer = commands.services()["hand-back"].ready(ROOT)
    commands.carry_out(controller._do)
    assert isinstance(answer, Future)
    return str(answer.exception() or "")


def test_cycles_out_of_time_go_on_where_they_stopped(site: Site, controller: Controller) -> None:
    for done in (6, 12, 18):
        site.answers_only_some()
        assert "slurmctld is down" in cycle(controller)
        assert site.ours() == done
    site.slurm.breaks_off_after = None
    assert not cycle(controller)
    assert site.ours() == JOBS
    assert site.slurm.writes == JOBS, "no job was written to twice"


def test_a_release_out_of_time_goes_on_where_it_stopped(site: Site, controller: Controller) -> None:
    assert not cycle(controller) and site.ours() == JOBS
    for left in (14, 8, 2):
        site.answers_only_some()
        assert "slurmctld is down" in release(controller)
        assert site.ours() == left
    site.slurm.breaks_off_after = None
    assert not release(controller)
    assert site.ours() == 0
    assert site.slurm.writes == 2 * JOBS, "no job was written to twice"


def test_each_part_of_many_writes_is_recorded(
    site: Site, controller: Controller, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the controller is killed during the next part."""
    monkeypatch.setattr(send, "MOST_WRITES_AT_ONCE", AT_ONCE)
    real, parts = site.slurm.write, []

    def write(writes: Sequence[Write]) -> Sequence[WriteFailure]:
        parts.append(len(writes))
        if len(parts) == 3:
            raise KeyboardInterrupt
        return real(writes)

    monkeypatch.setattr(site.slurm, "write", write)
    with pytest.raises(KeyboardInterrupt):
        cycle(controller)
    assert parts == [6, 6, 6]
    with closing(Ledger.to_read(Path(config.controller.state_dir) / FILE_NAME)) as ledger:
        written = [
            job.written_priority or job.written_site_factor for job in ledger.jobs.live().values()
        ]
    assert sum(map(bool, written)) == site.ours() == 12


def test_a_failed_release_leaves_the_controller_paused(site: Site, controller: Controller) -> None:
    cycle(controller)
    site.slurm.refusals[site.keys[3]] = "slurm_update error: Requested partition is down"
    assert f"Slurm refused 1 of {JOBS} changes" in release(controller)
    assert controller._mode() == PAUSED
    assert not cycle(controller)
    assert site.ours() == 1, "no cycle has taken a job back"
    assert not release(controller)
    assert site.ours() == 0


def test_a_job_that_ends_during_a_release_is_no_failure(
    site: Site, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle(controller)
    real, ends = site.slurm.write, site.keys[3]

    def write(writes: Sequence[Write]) -> Sequence[WriteFailure]:
        site.cancel(ends)
        failures = real(writes)
        assert [(failure.write.key, failure.has_ended) for failure in failures] == [(ends, True)]
        return failures

    monkeypatch.setattr(site.slurm, "write", write)
    assert not release(controller)
    assert site.ours() == 0 and controller._mode() == PAUSED


@pytest.mark.parametrize("ends", ["with an error", "well"])
def test_a_release_without_a_controller_is_noted_as_paused(
    site: Site, config: Config, controller: Controller, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle(controller)
    monkeypatch.setattr(offline, "driver", lambda _config: site.slurm)
    if ends == "well":
        assert offline.hand_back(config) == JOBS
    else:
        site.answers_only_some()
        with pytest.raises(SlurmUnreachableError):
            offline.hand_back(config)
        assert site.ours() == JOBS - AT_ONCE
        offline.hand_back(config)
    assert site.ours() == 0
    assert controller._mode() == PAUSED
