"""What commands do instead of a controller while none runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from slurm_tiresias.controller.cycle import Cycles
from slurm_tiresias.controller.driver import driver
from slurm_tiresias.controller.rebuild import Rebuilt, rebuild
from slurm_tiresias.controller.state import ledger_and_profiler, note_paused, state_dir_locked
from slurm_tiresias.errors import AlreadyRunningError, LedgerError
from slurm_tiresias.settings import Config
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.retention import Pruning, prune_all
from slurm_tiresias.store.terms import newest_ledger


def hand_back(config: Config) -> int:
    """Hand every managed job back to Slurm while no controller runs; return how many writes."""
    slurm = driver(config)
    with state_dir_locked(config), ledger_and_profiler(config) as (ledger, profiler):
        cluster = slurm.cluster()
        ledger.bind(cluster.name)
        note_paused(ledger, True)
        outcome = Cycles(slurm, cluster, ledger, config, profiler).hand_back()
        outcome.raise_for_failures()
        return outcome.writes


def rebuild_ledger(config: Config) -> Rebuilt:
    """Replace a damaged or lost ledger by a new one while no controller runs."""
    with state_dir_locked(config) as state_dir:
        return rebuild(driver(config), config, state_dir)


def prune_ledger(config: Config, before_s: float | None, *, dry_run: bool) -> Pruning:
    """Remove jobs that ended before a time from the ledger, while no controller runs.

    ``before_s`` None means the retention time of the configuration. With ``dry_run`` nothing is
    removed, and a controller may run. Raises ``UsageError`` if neither gives a time, and
    ``LedgerError``.
    """
    path = _existing_ledger(config)
    if dry_run:
        with closing(Ledger.to_read(path)) as ledger:
            return prune_all(ledger, config, before_s, dry_run=True)
    try:
        with _ledger_alone(config) as ledger:
            return prune_all(ledger, config, before_s, dry_run=False)
    except AlreadyRunningError as error:
        raise AlreadyRunningError(
            error.what,
            "It prunes the ledger itself, by controller.keep_ended_jobs_days; to prune it now, "
            "stop the controller first",
        ) from error


def adopt_ledger(config: Config) -> tuple[str, str]:
    """Bind the ledger to the cluster's present name while no controller runs.

    Returns the name that it was bound to before, and the present one.
    """
    _existing_ledger(config)
    cluster = driver(config).cluster()
    with _ledger_alone(config) as ledger:
        before = ledger.cluster or ""
        ledger.bind(cluster.name, renamed=True)
        return before, cluster.name


def set_paused(config: Config, paused: bool) -> None:
    """Store whether the next controller starts paused, while none runs."""
    with _ledger_alone(config) as ledger:
        note_paused(ledger, paused)


def _existing_ledger(config: Config) -> Path:
    path = newest_ledger(Path(config.controller.state_dir))
    if not path.exists():
        raise LedgerError(
            f"There is no ledger in {path.parent}",
            "Name the controller's directory in controller.state_dir, or run this on its host",
        )
    return path


@contextmanager
def _ledger_alone(config: Config) -> Iterator[Ledger]:
    """Open the newest ledger, with the state directory locked."""
    with state_dir_locked(config) as state_dir, closing(Ledger(newest_ledger(state_dir))) as ledger:
        yield ledger
