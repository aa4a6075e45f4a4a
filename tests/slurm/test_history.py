"""The history of a real cluster as a workload: each job once, with its total running time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster
from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError, TraceError, UsageError
from slurm_tiresias.simulator.history import from_sacct
from slurm_tiresias.simulator.workload import TraceJob, Workload
from slurm_tiresias.slurm.protocol import Commands

pytestmark = pytest.mark.slurm


def history(cluster: RealCluster, since: str) -> Workload:
    return from_sacct(since, Commands(environment=dict(cluster.env)))


def now() -> str:
    """A time at which no job of earlier tests was alive, in UTC."""
    time.sleep(1.1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


def by_id(workload: Workload) -> dict[str, TraceJob]:
    return {job.job_id: job for job in workload.jobs}


def ended(cluster: RealCluster, since: str, *keys: str) -> Workload:
    """Return the history once accounting has the end of these jobs."""

    def known() -> Workload | None:
        try:
            workload = history(cluster, since)
        except (UsageError, TraceError):  # no job at all yet, or none that has ended
            return None
        return workload if set(keys) <= by_id(workload).keys() else None

    workload = cluster.wait_until(known, f"{keys} in the accounting")
    assert workload is not None
    return workload


def test_only_the_wanted_part_of_the_history_is_read(clean_cluster: RealCluster) -> None:
    since = now()
    job = clean_cluster.sbatch("--gpus=1", script="sleep 1")
    partition = clean_cluster.squeue_field(job, "Partition")
    ended(clean_cluster, since, job)
    until = now()
    late = clean_cluster.sbatch("--gpus=1", script="sleep 1")
    ended(clean_cluster, since, job, late)
    commands = Commands(environment=dict(clean_cluster.env))
    assert {*by_id(from_sacct(since, commands, until=until))} == {job}
    assert {*by_id(from_sacct(since, commands, partition=partition))} == {job, late}
    for other in ({"partition": "none"}, {"account": "none"}, {"until": "2020-01-01"}):
        with pytest.raises(UsageError) as refused:
            from_sacct(since, commands, **other)
        assert_is_one_clear_line(refused.value)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("since", ["last tuesday", "2026-13-01", "2999-01-01", "", " ", "a\x1b[2J"])
def test_an_invalid_time_is_refused(cluster: RealCluster, since: str) -> None:
    with pytest.raises(UsageError) as refused:
        history(cluster, since)
    assert_is_one_clear_line(refused.value)


def test_a_start_time_after_which_nothing_happened_is_refused(clean_cluster: RealCluster) -> None:
    with pytest.raises(UsageError, match="no job since") as refused:
        history(clean_cluster, now())
    assert_is_one_clear_line(refused.value)


def test_missing_accounting_and_a_stopped_slurmdbd_are_reported(clean_cluster: RealCluster) -> None:
    """sacct itself reads in slurm.conf whether there is accounting, and where."""
    config = Path(clean_cluster.env["SLURM_CONF"]).read_text().splitlines()
    kept = [line for line in config if not line.startswith("AccountingStorage")]
    lost = ["AccountingStorageType=accounting_storage/slurmdbd", "AccountingStoragePort=19"]
    for added, error in (([], UsageError), (lost, SlurmUnreachableError)):
        file = clean_cluster.folder / "another-slurm.conf"
        file.write_text("\n".join([*kept, *added, ""]))
        commands = Commands(environment={**clean_cluster.env, "SLURM_CONF": str(file)})
        with pytest.raises(TiresiasError) as refused:
            from_sacct("2020-01-01", commands)
        assert type(refused.value) is error
        assert_is_one_clear_line(refused.value)


def test_a_missing_sacct_is_reported() -> None:
    with pytest.raises(SlurmUnreachableError, match="cannot be started") as refused:
        from_sacct("2020-01-01", Commands(sacct="/nonexistent/sacct"))
    assert_is_one_clear_line(refused.value)


def test_an_answer_of_any_length_is_read(tmp_path: Path) -> None:
    """More output than fits into a pipe, and harmless messages."""
    rows = 20_000
    sacct = tmp_path / "sacct"
    sacct.write_text(
        "#!/bin/sh\n"
        "echo 'JobID|Submit|State|ElapsedRaw|AllocTRES'\n"
        f"""seq 1 {rows} | sed 's/.*/&|&|COMPLETED|60|cpu=1,gres\\/gpu=2/'\n"""
        "echo 'sacct: warning: something else' >&2\n"
    )
    sacct.chmod(0o755)
    workload = from_sacct("2020-01-01", Commands(sacct=str(sacct)))
    assert len(workload.jobs) == rows
    assert workload.jobs[-1] == TraceJob(str(rows), rows - 1.0, 2, 60.0)


def test_a_history_longer_than_the_site_allows_is_refused(tmp_path: Path) -> None:
    """sacct then prints its header, and may exit with success."""
    sacct = tmp_path / "sacct"
    sacct.write_text(
        "#!/bin/sh\necho 'JobID|Submit|State|ElapsedRaw|AllocTRES'\n"
        "echo 'sacct: error: slurmdbd: Too wide of a date range in query' >&2\n"
    )
    sacct.chmod(0o755)
    with pytest.raises(UsageError, match="a later time") as refused:
        from_sacct("2020-01-01", Commands(sacct=str(sacct)))
    assert_is_one_clear_line(refused.value)


def assert_is_one_clear_line(error: TiresiasError) -> None:
    said = str(error)
    assert said.isprintable() and error.what and error.remedy
    assert len(said) < 400
