"""The profiler: learns from running jobs, and chooses the placement of pending ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job_hints import Hints, hints_of
from slurm_tiresias.model import JobSpec, JobState, JobStatus
from slurm_tiresias.profiler import placing
from slurm_tiresias.profiler.collect_folder import Collected, CollectFolder
from slurm_tiresias.profiler.gpu_runs import NodeGpus
from slurm_tiresias.profiler.known_profiles import KnownProfiles, known_profiles
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
from slurm_tiresias.profiler.speeds import RunTraffic
from slurm_tiresias.profiler.store import NodeRun, ProfileStore
from slurm_tiresias.profiler.traffic import Traffic, sent_in
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

RanSeconds = Callable[[str, int], float]
"""Returns the seconds that a job's run after this many restarts lasted; 0.0 if unknown."""


class Profiler:
    """Chooses the placement of jobs, and learns from finished ones.

    A failure here never stops scheduling: without its store or its folder, jobs are placed by what
    was known before, or as configured.
    """

    def __init__(self, store: ProfileStore, config: Config) -> None:
        self._store = store
        self._config = config
        self._version = -1
        self._warning = WarnOnce("what running jobs do cannot be kept for now")
        self._known = known(config, [], [])
        self._placings: dict[str, tuple[JobSpec, Placing]] = {}
        """Each job's spec and its placement; cleared when the known profiles change."""
        self.folder = CollectFolder(config.profiler.collect_dir)
        self.folder.known.tell(self._known.profiles)

    def placing(self, job: JobSpec) -> Placing:
        """Return how to place a job: by its hint, by experience, or by its model's skew."""
        asked, found = self._placings.get(job.key, (None, None))
        if found is None or asked is not job:
            found = self._found(job)
            self._placings[job.key] = (job, found)
        return found

    def _found(self, job: JobSpec) -> Placing:
        hints = hints_of(job.admin_comment, job.comment)
        profile = find(self._known.profiles, job.user, hints.model, job.name)
        if hints.style is not None:
            found = placing.by_wish(hints.style)
        elif profile is not None:
            found = self._known.placing(profile, _program_of(job, hints))
        else:
            found = placing.by_default(hints.model)
        if hints.problem:
            because = f"its hint is not heeded, {hints.problem}; {found.because}"
            found = replace(found, because=because)
        return found

    def learn(self, seen: Observation, ran_s: RanSeconds) -> None:
        """Take in the messages and GPU use of finished jobs, and profiles stored by others; then
        update the index file of the nodes."""
        found = self._placings
        self._placings = {job.key: found[job.key] for job in seen.jobs if job.key in found}
        self.folder.background.step_unless_started()
        try:
            self._collect(seen, ran_s)
            self._refresh()
        except TiresiasError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()
        self.folder.background.step_unless_started()

    # Placement

    def _refresh(self) -> None:
        version = self._store.version()
        if version == self._version:
            return
        self._known = known(self._config, self._store.profiles(), self._store.runs())
        self._version = version
        self._placings.clear()
        self.folder.known.tell(self._known.profiles)

    # Learning

    def _collect(self, seen: Observation, ran_s: RanSeconds) -> None:
        jobs = {job.raw_id: job for job in seen.jobs}
        for collected in self.folder.read.values():
            job = jobs.get(collected.run_id.job_id)
            if job is None or _is_over(job, collected.run_id.restarts):
                self._take(collected, job, ran_s, seen.at_s)
                self.folder.finish(collected)

    def _take(
        self, collected: Collected, job: JobStatus | None, ran_s: RanSeconds, now_s: float
    ) -> None:
        run_id, found = collected.run_id, collected.content
        if job is None or isinstance(found, str):
            return  # Slurm has forgotten the job, so its owner is unknown; or it is not readable.
        if not isinstance(found, Traffic):
            self._store.add_gpus(NodeGpus(run_id, _key_of(job.spec), found), now_s)
        elif run := _run_in(found, job.spec, ran_s(job.key, run_id.restarts)):
            self._store.add(NodeRun(run_id, run), now_s)
            self._version = -1


def known(config: Config, stored: Sequence[Profile], runs: Sequence[RunTraffic]) -> KnownProfiles:
    """Evaluate the content of a store under this configuration."""
    return known_profiles(stored, runs, config.placement.pack_limit)


def _program_of(job: JobSpec, hints: Hints) -> Key:
    """Return the key of a job's runs: the user and the model, or without a model the job's name."""
    if hints.model:
        return key_of(MODEL, hints.model, job.user)
    return key_of(JOB, job.name, job.user)


def _is_over(job: JobStatus, restarts: int) -> bool:
    return job.restarts > restarts or job.state is None or job.state is JobState.COMPLETING


def _key_of(job: JobSpec) -> Key:
    return _program_of(job, hints_of(job.admin_comment, job.comment))


def _run_in(traffic: Traffic, job: JobSpec, elapsed_s: float) -> RunTraffic | None:
    """Return what one node saw of a run; collectives are better evidence than their messages."""
    gpus = job.request.gpu_count
    for source, section in ((COLLECTIVES, traffic.collectives), (TRAFFIC, traffic.messages)):
        if sent := sent_in(section):
            key = _key_of(job)
            return RunTraffic(
                key, source, sent.skew, sent.sent_bytes, gpus, nodes=1, elapsed_s=elapsed_s
            )
    return None
