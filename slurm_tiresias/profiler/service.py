"""The profiler: learns from running jobs, and chooses the placement of pending ones."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from slurm_tiresias.config import Config
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job_hints import Hints, hints_of
from slurm_tiresias.model import JobSpec, JobState, JobStatus, PlacementStyle
from slurm_tiresias.profiler import placing
from slurm_tiresias.profiler.gpu_runs import MOST_FILE_BYTES, GpuRun, NodeGpus
from slurm_tiresias.profiler.gpu_runs import parse as parse_gpus
from slurm_tiresias.profiler.knowledge import Knowledge, knowledge_of
from slurm_tiresias.profiler.placing import Placing
from slurm_tiresias.profiler.profile import (
    COLLECTIVES,
    JOB,
    MODEL,
    TRAFFIC,
    Key,
    Profile,
    find,
    key_of,
)
from slurm_tiresias.profiler.profile_index import KnownFile
from slurm_tiresias.profiler.run_id import GPUS_KIND, RunId, parsed_file_name
from slurm_tiresias.profiler.skew import MB, Limits
from slurm_tiresias.profiler.speeds import Run
from slurm_tiresias.profiler.store import NodeRun, ProfileStore
from slurm_tiresias.profiler.traffic import FILE_BYTES, Traffic, parse, sent_in
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

FILES_OF_A_CYCLE = 100
"""Files read per cycle, so that a flood of small jobs does not delay scheduling; the rest is read
in later cycles."""
NAMES_OF_A_CYCLE = 10_000
ASIDE = "refused"
"""Subfolder for unreadable files, for an admin to look at."""

RanSeconds = Callable[[str, int], float]
"""Returns the seconds that a job's run after this many restarts lasted; 0.0 if unknown."""


@dataclass(frozen=True, slots=True)
class _Collected:
    """A collected file, its kind, and its run."""

    run_id: RunId
    kind: str
    path: Path


class Profiler:
    """Chooses the placement of jobs, and learns from finished ones.

    A failure here never stops scheduling: without its store or its folder, jobs are placed by what
    was known before, or as configured.
    """

    def __init__(self, store: ProfileStore, config: Config) -> None:
        self._store = store
        self._config = config
        self._version = -1
        self._done: set[str] = set()
        self._warning = WarnOnce("nothing can be learned from running jobs for now")
        self._knowledge = known(config, [], [])
        self._placings: dict[str, tuple[JobSpec, Placing]] = {}
        """Each job's spec and its placement; cleared when the knowledge changes."""
        self._known_file = KnownFile(config.profiler.collect_dir)
        self._known_file.tell(self._knowledge.profiles)

    def placing(self, job: JobSpec) -> Placing:
        """Return how to place a job: by its hint, by experience, or by its model's skew."""
        asked, found = self._placings.get(job.key, (None, None))
        if found is None or asked is not job:
            found = self._found(job)
            self._placings[job.key] = (job, found)
        return found

    def _found(self, job: JobSpec) -> Placing:
        hints = hints_of(job.admin_comment, job.comment)
        profile = find(self._knowledge.profiles, job.user, hints.model, job.name)
        if hints.style is not None:
            found = placing.by_wish(hints.style)
        elif profile is not None:
            found = self._knowledge.placing(profile, _program_of(job, hints))
        else:
            unknown = PlacementStyle(self._config.placement.unknown_model)
            found = placing.by_setting(hints.model, unknown)
        if hints.problem:
            because = f"its hint is not heeded, {hints.problem}; {found.because}"
            found = replace(found, because=because)
        return found

    def learn(self, seen: Observation, ran_s: RanSeconds) -> None:
        """Take in what finished jobs sent and did with their GPUs, and profiles stored by others;
        then update the index file of the nodes."""
        found = self._placings
        self._placings = {job.key: found[job.key] for job in seen.jobs if job.key in found}
        try:
            self._collect(seen, ran_s)
            self._refresh()
        except (TiresiasError, OSError) as error:
            self._warning.warn(error)
        else:
            self._warning.clear()
        self._known_file.write()

    # What is known

    def _refresh(self) -> None:
        version = self._store.version()
        if version == self._version:
            return
        self._knowledge = known(self._config, self._store.profiles(), self._store.runs())
        self._version = version
        self._placings.clear()
        self._known_file.tell(self._knowledge.profiles)

    # What is learned

    def _collect(self, seen: Observation, ran_s: RanSeconds) -> None:
        if not self._config.profiler.collect_dir:
            return
        jobs = {job.raw_id: job for job in seen.jobs}
        taken = 0
        for collected in self._collected():
            job = jobs.get(collected.run_id.job_id)
            if job is not None and not _is_over(job, collected.run_id.restarts):
                continue
            self._take(collected, job, ran_s, seen.at_s)
            taken += 1
            if taken == FILES_OF_A_CYCLE:
                break

    def _collected(self) -> list[_Collected]:
        """Return the files not read yet, those of the oldest jobs first."""
        folder = Path(self._config.profiler.collect_dir)
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, NAMES_OF_A_CYCLE)]
        self._done.intersection_update(names)
        named = ((name, parsed_file_name(name)) for name in names if name not in self._done)
        collected = (_Collected(*of, folder / name) for name, of in named if of)
        return sorted(collected, key=lambda each: (each.run_id, each.kind))

    def _take(
        self, collected: _Collected, job: JobStatus | None, ran_s: RanSeconds, now_s: float
    ) -> None:
        try:
            found = _content(collected)
        except (TiresiasError, OSError) as error:
            log.warning("%s is put aside: %s", collected.path.name, error)
            self._finish(collected, aside=True)
            return
        run_id = collected.run_id
        if job is None:
            pass  # Slurm has forgotten the job, so its owner is unknown.
        elif not isinstance(found, Traffic):
            self._store.add_gpus(NodeGpus(run_id, _key_of(job.spec), found), now_s)
        elif run := _run_in(found, job.spec, ran_s(job.key, run_id.restarts)):
            self._store.add(NodeRun(run_id, run), now_s)
            self._version = -1
        self._finish(collected, aside=False)

    def _finish(self, collected: _Collected, aside: bool) -> None:
        """Remove or set aside a file that was read; if that fails, just do not read it again."""
        self._done.add(collected.path.name)
        try:
            if aside:
                _put_aside(collected.path)
            else:
                collected.path.unlink()
        except OSError as error:
            log.debug("%s stays where it is: %s", collected.path, error)


def known(config: Config, stored: Sequence[Profile], runs: Sequence[Run]) -> Knowledge:
    """Evaluate the content of a store under this configuration."""
    prior = Limits(config.placement.pack_limit, config.profiler.least_message_mb * MB)
    return knowledge_of(stored, runs, prior, config.profiler.fit_models)


def _program_of(job: JobSpec, hints: Hints) -> Key:
    """Return the key of a job's runs: the user and the model, or without a model the job's name."""
    if hints.model:
        return key_of(MODEL, hints.model, job.user)
    return key_of(JOB, job.name, job.user)


def _is_over(job: JobStatus, restarts: int) -> bool:
    return job.restarts > restarts or job.state is None or job.state is JobState.COMPLETING


def _content(collected: _Collected) -> Traffic | tuple[GpuRun, ...]:
    """Parse a collected file; raise an error if it does not hold what its name says."""
    path, flags = collected.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TiresiasError(f"{path.name} is not a file", "Remove it")
        # One byte more than the limit, so that a longer file is noticed.
        content = stream.read(max(FILE_BYTES, MOST_FILE_BYTES) + 1)
    return parse_gpus(content) if collected.kind == GPUS_KIND else parse(content)


def _put_aside(path: Path) -> None:
    """Move a file into a subfolder, without following a link that a user may have put there."""
    folder = path.parent / ASIDE
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.rename(path, path.name, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _key_of(job: JobSpec) -> Key:
    return _program_of(job, hints_of(job.admin_comment, job.comment))


def _run_in(traffic: Traffic, job: JobSpec, elapsed_s: float) -> Run | None:
    """Return what one node saw of a run; collectives are better evidence than their messages."""
    gpus = job.request.gpu_count
    for source, section in ((COLLECTIVES, traffic.collectives), (TRAFFIC, traffic.messages)):
        if sent := sent_in(section):
            key = _key_of(job)
            return Run(key, source, sent.skew, sent.sent_bytes, gpus, nodes=1, elapsed_s=elapsed_s)
    return None
