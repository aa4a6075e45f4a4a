"""The controller as a process: the lock, the loop, the signals, the control socket."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import selectors
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_tiresias.config import Config
from slurm_tiresias.controller import published
from slurm_tiresias.controller.act import Outcome
from slurm_tiresias.controller.control import SOCKET_NAME, command_of, take_nudge
from slurm_tiresias.controller.cycle import (
    ENFORCE,
    PAUSED,
    SHADOW,
    Cycle,
    Cycles,
    collect_seldom,
)
from slurm_tiresias.controller.http import Listener
from slurm_tiresias.controller.lease import FileLease
from slurm_tiresias.controller.ledger import Ledger
from slurm_tiresias.controller.life import lives
from slurm_tiresias.controller.manage import missing_partitions, no_such_partitions
from slurm_tiresias.controller.own_folder import is_anybodys
from slurm_tiresias.controller.page.page import Page
from slurm_tiresias.controller.period import periods
from slurm_tiresias.controller.profiling import Profiler
from slurm_tiresias.controller.published import PublishedStandby, PublishedState
from slurm_tiresias.controller.rebuild import Rebuilt, rebuild
from slurm_tiresias.controller.report import Health, nothing_yet, report
from slurm_tiresias.controller.signals import Stop, wakeups_by_signal
from slurm_tiresias.controller.standby import StandsBy, acting_host
from slurm_tiresias.controller.succession import (
    inherited_ledger,
    inherited_profiles,
    newest_ledger,
    newest_profiles,
)
from slurm_tiresias.controller.systemd import tell_systemd
from slurm_tiresias.controller.views import Views
from slurm_tiresias.database import set_mode
from slurm_tiresias.errors import (
    AlreadyRunningError,
    ConfigError,
    LeaseLostError,
    SlurmPermissionError,
    TiresiasError,
)
from slurm_tiresias.own_file import make_if_missing
from slurm_tiresias.profiler.store import ProfileStore, ProfileStoreError
from slurm_tiresias.slurm.choose import slurm_by
from slurm_tiresias.slurm.protocol import Cluster, Commands, Lease, Observation, Slurm
from slurm_tiresias.slurm.release import warning_about
from slurm_tiresias.slurm.tally import Tally

if TYPE_CHECKING:
    from slurm_tiresias.controller.metrics import Metrics

log = logging.getLogger("tiresias-slurm")

LOCK_NAME = "lock"
EVENTS_PUBLISHED = 300
LOOK_AGAIN_S = (0.05, 0.5)
"""While a start or a preemption is under way: Slurm mostly answers a write at once, so the next
cycle comes soon after one that wrote, and then after ever longer pauses."""

LEAST_GAP_S = 0.2
MOST_LOAD = 0.25
"""A thousand jobs that end at once nudge a thousand times: between cycles there is this gap, and
nudges alone make no more than this share of the time a cycle."""

LOOK_FOR_NUDGE_S = 0.02
"""How often it is looked whether Slurm's hooks have left a nudge, and how long after one the cycle
begins: job_submit.lua leaves it a moment before its job exists."""

HAND_OVER_INTERVALS = 2
"""So long slurmctld must have acted elsewhere: it may only have been restarted."""

STOPPED = "stopped"
"""The mode that a controller publishes when it ends."""

LONGEST_BACKOFF_S = 120.0
MOST_DOUBLINGS = 16
"""Beyond any bound for any interval; a float holds some thousand doublings and no more."""

READ_REQUEST_S = 1.0


def run(config: Config, shadow: bool = False) -> None:
    """Run the controller until a signal stops it; with ``controller.standby``, when its turn comes.

    Raises ``AlreadyRunningError`` where another one holds the state directory, and whatever the
    first contact with Slurm, the ledger or the configuration raises: a controller that cannot
    work does not start. Later failures are waited out.
    """
    if config.controller.standby:
        _run_in_turns(config, shadow)
        return
    asked = Tally()
    slurm = driver(config, asked=asked)
    with _state_dir_locked(config) as state_dir, _ledger_and_profiler(config) as (ledger, profiler):
        cluster = _first_contact(slurm, config)
        _show_profiles_to_whom_they_may(cluster, state_dir)
        with _told_over_http(config, cluster, asked) as (metrics, page):
            Controller(
                *(slurm, cluster, ledger, profiler, config, state_dir, shadow),
                metrics=metrics,
                page=page,
            ).loop()


def _run_in_turns(config: Config, shadow: bool) -> None:
    """Stand by, act for as long as the lease lasts, stand by again; until a signal stops it."""
    stop, asked = Stop(), Tally()
    with _state_dir_locked(config, shared=True) as state_dir:
        lease = FileLease(state_dir, host_name(config), config.controller.interval_s)
        slurm = driver(config, lease, asked)
        cluster = _first_contact(slurm, config)
        standby = StandsBy(slurm, lease, config.controller.interval_s, stop)
        with _told_over_http(config, cluster, asked) as (metrics, page):
            while standby.until_its_turn():
                try:
                    with _ledger_and_profiler(config, lease.term) as (ledger, profiler):
                        _show_profiles_to_whom_they_may(cluster, state_dir)
                        Controller(
                            *(slurm, cluster, ledger, profiler, config, state_dir, shadow),
                            stop=stop,
                            lease=lease,
                            metrics=metrics,
                            page=page,
                        ).loop()
                except LeaseLostError as error:
                    log.warning("steps down: %s", error)
                finally:
                    lease.release()
                    if metrics:
                        metrics.stands_by()
                    if page:
                        page.stand_by()


@contextmanager
def _told_over_http(
    config: Config, cluster: Cluster, asked: Tally
) -> Iterator[tuple[Metrics | None, Page | None]]:
    """What is measured and the live page, shown to others meanwhile; None where nobody wants it, or
    it cannot be: the controller goes on without."""
    if not config.http.listen:
        yield None, None
        return
    metrics = _metrics(config, cluster, asked)
    page = Page(private=cluster.jobs_are_private, names=config.http.names)
    pages = {"/metrics": metrics.page} if metrics else {}
    with Listener(config.http.listen, pages, page.answer).open():
        yield metrics, page


def _metrics(config: Config, cluster: Cluster, asked: Tally) -> Metrics | None:
    try:
        from slurm_tiresias.controller.metrics import Metrics
    except ImportError as error:
        log.warning("there are no metrics: %s. Do: pip install prometheus_client", error)
        return None
    return Metrics(cluster, config, asked)


def _first_contact(slurm: Slurm, config: Config) -> Cluster:
    cluster = slurm.cluster()
    _check_partitions(slurm, config)
    _check_rights(slurm)
    collect_seldom()
    return cluster


def _show_profiles_to_whom_they_may(cluster: Cluster, state_dir: Path) -> None:
    """They have the names of jobs that were measured."""
    set_mode(newest_profiles(state_dir), 0o600 if cluster.jobs_are_private else 0o644)


def release(config: Config) -> int:
    """Give every managed job back to Slurm while no controller runs; returns how many writes."""
    slurm = driver(config)
    with _state_dir_locked(config), _ledger_and_profiler(config) as (ledger, profiler):
        outcome = Cycles(slurm, slurm.cluster(), ledger, config, profiler).release()
        _raise_for_failures(outcome)
        ledger.set_value("paused", "yes")
        return outcome.writes


def rebuild_ledger(config: Config) -> Rebuilt:
    """Put a new ledger in the place of a damaged or lost one, while no controller runs."""
    with _state_dir_locked(config) as state_dir:
        return rebuild(driver(config), config, state_dir)


def set_paused(config: Config, paused: bool) -> None:
    """Remember for the next controller whether it is to act, while none runs."""
    with (
        _state_dir_locked(config) as state_dir,
        closing(Ledger(newest_ledger(state_dir))) as ledger,
    ):
        ledger.set_value("paused", "yes" if paused else "no")


def driver(config: Config, lease: Lease | None = None, asked: Tally | None = None) -> Slurm:
    """The driver that this configuration asks for; what is ``asked`` of Slurm is counted there."""
    commands = Commands(timeout_s=config.controller.command_timeout_s)
    return slurm_by(config.slurm.driver, commands, lease, asked)


def _pause_s(failures: int, interval_s: float) -> float:
    """How long to wait after so many failures in a row: longer each time, with jitter, so that
    many do not knock together."""
    longest_s = min(LONGEST_BACKOFF_S, interval_s * 2.0 ** min(failures, MOST_DOUBLINGS))
    return random.uniform(longest_s / 2, longest_s)


class Controller:
    """The loop: a cycle when the interval is over, when somebody nudges, or sooner while a
    preemption is under way."""

    def __init__(
        self,
        slurm: Slurm,
        cluster: Cluster,
        ledger: Ledger,
        profiler: Profiler,
        config: Config,
        state_dir: Path,
        shadow: bool,
        *,
        stop: Stop | None = None,
        lease: FileLease | None = None,
        metrics: Metrics | None = None,
        page: Page | None = None,
    ) -> None:
        """``lease`` where other controllers may stand by: it acts for as long as that lasts."""
        self._metrics = metrics
        self._page = page
        self._slurm = slurm
        self._cluster = cluster
        self._lease = lease
        self._stop = stop or Stop()
        self._ledger = ledger
        self._config = config
        self._state_dir = state_dir
        self._shadow = shadow or config.controller.mode == SHADOW
        self._cycles = Cycles(slurm, cluster, ledger, config, profiler)
        self._next_s = self._last_s = self._acted_here_s = time.monotonic()
        self._look_again_s = LOOK_AGAIN_S[0]
        self._health = Health(
            *(self._mode(), time.time(), 0, time.time(), 0.0),
            host=host_name(config),
            term=lease.term if lease else 0,
            driver=slurm.driver.name,
            driver_because=slurm.driver.because,
        )
        self._state = nothing_yet(cluster, config, self._health)
        self._views = Views(state_dir, self._state) if cluster.jobs_are_private else None
        self._lives = lives(state_dir, ledger.path, private=cluster.jobs_are_private)
        self._periods = periods(state_dir, ledger.path, private=cluster.jobs_are_private)
        if metrics:
            metrics.acts(self._state)

    def loop(self) -> None:
        """Run cycles until a signal says stop, or another controller is to act.

        ``LeaseLostError`` where one may act already.
        """
        views = self._views.open() if self._views else nullcontext()
        with (
            _control_socket(self._state_dir) as listener,
            wakeups_by_signal() as wakeups,
            views,
            self._lives.open(),
            self._periods.open(),
        ):
            self._stop.catch(nudge=self._nudge)
            selector = selectors.DefaultSelector()
            selector.register(listener, selectors.EVENT_READ)
            selector.register(wakeups, selectors.EVENT_READ)
            log.info("controls cluster %s in %s mode", self._cluster.name, self._mode())
            if unknown := warning_about(self._cluster.version):
                log.warning("%s", unknown)
            while not self._stop.asked:
                if time.monotonic() >= self._next_s:
                    self._cycle()
                    if self._hands_over():
                        return
                tell_systemd(self._in_a_line())
                for event in self._wait(selector):
                    if event is listener:
                        self._serve(listener)
                    else:
                        wakeups.recv(4096)
        if not self._standbys():
            self._put(replace(self._state, mode=STOPPED))
        log.info("stopped; Slurm goes on by the priorities that stand there")

    def _wait(self, selector: selectors.BaseSelector) -> list[object]:
        """Until the next cycle is due, or somebody speaks to this process: who it is."""
        while True:
            self._keep_lease()
            if take_nudge(self._state_dir):
                self._nudge(after_s=LOOK_FOR_NUDGE_S)
            left_s = max(0.0, self._next_s - time.monotonic())
            ready = selector.select(min(left_s, LOOK_FOR_NUDGE_S))
            if ready or left_s <= LOOK_FOR_NUDGE_S:
                return [key.fileobj for key, _ in ready]

    def _keep_lease(self) -> None:
        if self._lease:
            self._lease.renew()

    def _hands_over(self) -> bool:
        """Whether another controller acts from now on, because slurmctld acts on its host.

        It may be that only the other one reaches it.
        """
        if self._lease is None:
            return False
        wanted = {standby.host for standby in self._lease.standbys() if standby.wanted}
        host = acting_host(self._slurm) if wanted else self._lease.host
        now_s = time.monotonic()
        if host not in wanted | {""} or self._lease.host in wanted:
            self._acted_here_s = now_s
        if now_s - self._acted_here_s < HAND_OVER_INTERVALS * self._config.controller.interval_s:
            return False
        log.info("hands over to %s, where slurmctld acts", min(wanted))
        self._lease.release(to=min(wanted))
        return True

    def _in_a_line(self) -> str:
        """How it is, for systemd."""
        health = self._health
        if health.failures:
            pause_s = max(0.0, (health.next_try_s or 0.0) - time.time())
            return f"{health.failures} cycles failed, next try in {pause_s:.0f} s: {health.error}"
        return f"{health.mode}, cycle {health.cycle}"

    def _nudge(self, after_s: float = 0.0) -> None:
        """Run the next cycle now; of many nudges in a short time the first and one more count.

        While cycles fail nudges are no reason to try more often than every interval.
        """
        gap_s = max(LEAST_GAP_S, self._health.took_s / MOST_LOAD)
        if self._health.failures:
            gap_s = max(gap_s, self._config.controller.interval_s)
        at_s = max(time.monotonic() + after_s, self._last_s + gap_s)
        self._next_s = min(self._next_s, at_s)

    def _mode(self) -> str:
        if self._shadow:
            return SHADOW
        return PAUSED if self._ledger.value("paused") == "yes" else ENFORCE

    def _cycle(self) -> None:
        self._last_s = time.monotonic()
        try:
            cycle = self._cycles.run(self._mode())
        except LeaseLostError:
            raise
        except TiresiasError as error:
            self._failed(error)
            return
        self._publish(cycle)
        self._next_s = time.monotonic() + self._until_next_s(cycle)

    def _until_next_s(self, cycle: Cycle) -> float:
        soonest_s, latest_s = LOOK_AGAIN_S
        again_s = soonest_s if cycle.outcome.writes else 2 * self._look_again_s
        self._look_again_s = min(again_s, latest_s)
        interval_s = max(0.0, self._config.controller.interval_s - cycle.took.all_s)
        if not cycle.outcome.unsettled:
            return interval_s
        return min(interval_s, max(self._look_again_s, cycle.took.all_s))

    def _failed(self, error: TiresiasError) -> None:
        """Say so, and try again later: nothing was acted on that was not sure."""
        pause_s = _pause_s(self._health.failures + 1, self._config.controller.interval_s)
        log.warning("cycle failed, next try in %.1f s: %s", pause_s, error)
        self._next_s = time.monotonic() + pause_s
        if self._metrics:
            self._metrics.failed(error)
        health = self._health.after_a_failure(error, time.time(), pause_s)
        self._health = replace(health, mode=self._mode())
        self._put(self._health.shown_on(self._state))

    def _publish(self, cycle: Cycle) -> None:
        began_s = time.monotonic()
        self._health = replace(
            self._health,
            mode=self._mode(),
            cycle=self._health.cycle + 1,
            at_s=cycle.seen.at_s,
            took_s=cycle.took.all_s,
            failures=0,
            error="",
            next_try_s=None,
            standbys=self._standbys(),
            warning=self._warning(cycle.seen),
            driver=self._slurm.driver.name,
            driver_because=self._slurm.driver.because,
        )
        log.debug(
            "cycle %d: read in %.3f s, decided in %.3f s, %d writes in %.3f s",
            *(self._health.cycle, cycle.took.read_s, cycle.took.decide_s),
            *(cycle.outcome.writes, cycle.took.act_s),
        )
        self._put(
            report(
                self._cluster,
                self._config,
                self._health,
                cycle.seen,
                cycle.snapshot,
                cycle.plan,
                self._cycles.book,
                self._ledger.last_events(EVENTS_PUBLISHED),
            )
        )
        if self._metrics:
            self._metrics.cycled(cycle, self._state, time.monotonic() - began_s)

    def _warning(self, seen: Observation) -> str:
        """What is wrong though the cycle was good."""
        missing = missing_partitions(seen, self._config.manage)
        wrong = str(no_such_partitions(missing, seen)) if missing else ""
        unknown = warning_about(self._cluster.version)
        return "; ".join(said for said in (wrong, unknown) if said)

    def _standbys(self) -> tuple[PublishedStandby, ...]:
        waiting = self._lease.standbys() if self._lease else []
        return tuple(PublishedStandby(s.host, s.pid, s.wanted) for s in waiting)

    def _put(self, state: PublishedState) -> None:
        """Publish; a full disk keeps people from seeing, not the controller from working."""
        self._state = state
        if self._lease:
            self._lease.check()
        if self._views:
            self._views.show(state)
        if self._metrics:
            self._metrics.show(state)
        if self._page:
            self._page.show(state, self._ledger.path)
        try:
            published.write(state, self._state_dir, private=self._views is not None)
        except OSError as error:
            log.warning("the state cannot be published: %s", error)
            if self._metrics:
                self._metrics.not_published()

    # The control socket

    def _serve(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(READ_REQUEST_S)
            try:
                command = command_of(connection.recv(64))
                connection.sendall(json.dumps(self._obey(command)).encode() + b"\n")
            except OSError as error:
                log.warning("a request on the control socket was cut off: %s", error)

    def _obey(self, command: str) -> dict[str, Any]:
        if not command:
            return {"ok": False, "error": "That is no command, or it came too late"}
        try:
            return {"ok": True, **self._do(command)}
        except TiresiasError as error:
            return {"ok": False, "error": str(error), "exit_code": error.exit_code}

    def _do(self, command: str) -> dict[str, Any]:
        if command == "nudge":
            self._nudge()
            return {"mode": self._mode(), "text": "The next cycle runs at once."}
        answer: dict[str, Any] = {}
        if command == "release" and not self._shadow:
            outcome = self._cycles.release()
            _raise_for_failures(outcome)
            answer["text"] = (
                f"Every managed job was given back to Slurm ({outcome.writes} changes)."
            )
        self._ledger.set_value("paused", "no" if command == "resume" else "yes")
        self._cycle()
        if self._health.error:
            answer["error"] = self._health.error
        return {"mode": self._mode(), **answer}


def _raise_for_failures(outcome: Outcome) -> None:
    if outcome.failures:
        first = outcome.failures[0]
        raise TiresiasError(
            f"Slurm refused {len(outcome.failures)} of {outcome.writes} changes, the first for job "
            f"{first.write.key}: {first.message}",
            "Try again; what was refused stands as it was",
        )


def host_name(config: Config) -> str:
    """What this host is called in slurm.conf."""
    return (config.controller.host or socket.gethostname()).partition(".")[0]


@contextmanager
def _state_dir_locked(config: Config, *, shared: bool = False) -> Iterator[Path]:
    """The state directory, for this process alone, or ``shared`` with those that take turns.

    The lock dies with the process.
    """
    state_dir = Path(config.controller.state_dir)
    try:
        state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check_that_nobody_else_writes_in(state_dir)
        make_if_missing(state_dir / LOCK_NAME, 0o600)
        descriptor = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"The state directory {state_dir} cannot be used: {error.strerror}",
            "Run this as the user that the controller runs as, or name a directory that this user "
            "may write in controller.state_dir",
        ) from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise AlreadyRunningError(
            f"Another controller works in {state_dir}",
            "Use that one; if it does not answer, see its log, or stop it",
        ) from error
    try:
        yield state_dir
    finally:
        os.close(descriptor)


def _check_that_nobody_else_writes_in(folder: Path) -> None:
    status = folder.stat()
    if is_anybodys(status.st_uid, status.st_mode, os.geteuid()):
        raise ConfigError(
            f"Others may write into the state directory {folder}, or it is another user's",
            "Give it to the controller's user, mode 755",
        )


@contextmanager
def _ledger_and_profiler(
    config: Config, term: int | None = None
) -> Iterator[tuple[Ledger, Profiler]]:
    """What the controller remembers, open until it ends: as it was left, or for a ``term`` that
    begins what was there before it."""
    state_dir = Path(config.controller.state_dir)
    path = newest_ledger(state_dir) if term is None else inherited_ledger(state_dir, term)
    with (
        closing(Ledger(path)) as ledger,
        closing(_profile_store(state_dir, term)) as store,
    ):
        yield ledger, Profiler(store, config)


def _profile_store(state_dir: Path, term: int | None) -> ProfileStore:
    """The store of profiles; where it cannot be used, one that lasts until the end."""
    try:
        return ProfileStore(
            newest_profiles(state_dir) if term is None else inherited_profiles(state_dir, term)
        )
    except (ProfileStoreError, OSError, sqlite3.Error) as error:
        log.warning("until a restart jobs are placed without the stored profiles: %s", error)
        return ProfileStore(None)


@contextmanager
def _control_socket(state_dir: Path) -> Iterator[socket.socket]:
    path = state_dir / SOCKET_NAME
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        previous = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise ConfigError(
                f"The control socket {path} cannot be made: {error}",
                "Give controller.state_dir a path of less than 90 characters on a local disk",
            ) from error
        finally:
            os.umask(previous)
        listener.listen(8)
        mine = path.lstat().st_ino
        try:
            yield listener
        finally:
            # Another controller may have taken over meanwhile, and listen there.
            with suppress(OSError):
                if path.lstat().st_ino == mine:
                    path.unlink()


def _check_partitions(slurm: Slurm, config: Config) -> None:
    """A misspelt partition would silently manage nothing."""
    seen = slurm.observe()
    if missing := missing_partitions(seen, config.manage):
        raise no_such_partitions(missing, seen)


def _check_rights(slurm: Slurm) -> None:
    """Without the rights of an operator no priority can be raised: say so before the first job."""
    if not slurm.may_operate():
        raise SlurmPermissionError(
            "This user may neither set priorities nor requeue other users' jobs",
            "Run the controller as SlurmUser or root, or give this user AdminLevel=Operator",
        )
