"""The controller as a process: the loop, the signals, the commands of administrators."""

from __future__ import annotations

import logging
import random
import socket
import time
from dataclasses import replace
from pathlib import Path

from slurm_tiresias.background import running
from slurm_tiresias.controller import drilled, metrics_asked, publish
from slurm_tiresias.controller.commands import Commands
from slurm_tiresias.controller.crash import MOST_LEFT_ALONE, signature, write_report
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, SHADOW, Cycle, Cycles, collect_seldom
from slurm_tiresias.controller.drilled import DrilledPrograms
from slurm_tiresias.controller.driver import driver
from slurm_tiresias.controller.forecasts import Forecasts
from slurm_tiresias.controller.instruments import Instruments, instruments
from slurm_tiresias.controller.manage import missing_partitions, no_such_partitions
from slurm_tiresias.controller.metrics_asked import metrics_service
from slurm_tiresias.controller.orders import obey
from slurm_tiresias.controller.pace import LEAST_GAP_S, Pace
from slurm_tiresias.controller.state import (
    RESUMED,
    is_paused,
    ledger_and_profiler,
    state_dir_locked,
)
from slurm_tiresias.core.rank import job_id_key
from slurm_tiresias.daemon.signals import Stop, Wakeups, signalled_when_made, take_nudge
from slurm_tiresias.daemon.systemd import Systemd
from slurm_tiresias.errors import InternalError, LeaseLostError, SlurmPermissionError, TiresiasError
from slurm_tiresias.ha.lease import FileLease
from slurm_tiresias.ha.standby import StandbyController, acting_host
from slurm_tiresias.profiler.gpu_use_folder import GpuUseFolder
from slurm_tiresias.profiler.public_copy import ProfilesCopy
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.progress.folder import ProgressFolder
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Cluster, Observation, Slurm
from slurm_tiresias.slurm.release import warning_about
from slurm_tiresias.slurm.removed_nodes import RemovedNodes
from slurm_tiresias.slurm.tally import Tally
from slurm_tiresias.status import job_history, published, report_query, when
from slurm_tiresias.status.job_history import history_service
from slurm_tiresias.status.privacy import Views
from slurm_tiresias.status.published import STOPPED, PublishedStandby, PublishedState
from slurm_tiresias.status.report_query import report_service
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.service import Peer, Question
from slurm_tiresias.store.ledger import Ledger, check_cluster
from slurm_tiresias.store.terms import newest_ledger, newest_profiles

log = logging.getLogger("tiresias-slurm")

EVENTS_PUBLISHED = 300
LOOK_FOR_NUDGE_S = 1.0
"""How often the controller looks for a nudge of Slurm's hooks, in seconds, where no signal
announces it: on NFS, for example."""

PRUNING_TAKES_S = 0.1
"""The ledger is pruned only if the next cycle is further away than this: four times what one
pruning step takes."""

NUDGE_SETTLES_S = 0.02
"""How long after a nudge the cycle begins: job_submit.lua leaves it a moment before its job exists.
"""

HAND_OVER_INTERVALS = 2
"""How many intervals slurmctld must have acted elsewhere before control is handed over: it may only
have been restarted."""

LONGEST_BACKOFF_S = 120.0
MOST_DOUBLINGS = 16
"""Enough to exceed any bound for any interval; a float overflows after about a thousand doublings.
"""


def run(config: Config, shadow: bool = False) -> None:
    """Run the controller until a signal stops it; with ``controller.standby``, in turns.

    Raises ``AlreadyRunningError`` if another controller holds the state directory, and any error of
    the first contact with Slurm, the ledger or the configuration: a controller that cannot work
    does not start. After later failures it tries again.
    """
    if shadow:
        config = replace(config, controller=replace(config.controller, mode=SHADOW))
    if config.controller.standby:
        _run_in_turns(config)
        return
    asked = Tally()
    slurm = driver(config, asked=asked)
    with state_dir_locked(config), ledger_and_profiler(config) as (ledger, profiler):
        cluster = _first_contact(slurm, config)
        ledger.bind(cluster.name)
        with instruments(config, cluster, asked) as shown:
            Controller(slurm, cluster, config, ledger, profiler, shown).loop()


def _run_in_turns(config: Config) -> None:
    """Stand by, act for as long as the lease lasts, stand by again; until a signal stops it."""
    stop, asked = Stop(), Tally()
    with state_dir_locked(config, shared=True) as state_dir:
        lease = FileLease(state_dir, host_name(), config.controller.interval_s)
        slurm = driver(config, lease, asked)
        cluster = _first_contact(slurm, config)
        check_cluster(newest_ledger(state_dir), cluster.name)
        standby = StandbyController(slurm, lease, config.controller.interval_s, stop)
        with instruments(config, cluster, asked) as shown:
            while standby.until_its_turn():
                try:
                    with ledger_and_profiler(config, lease) as (ledger, profiler):
                        ledger.bind(cluster.name)
                        Controller(
                            *(slurm, cluster, config, ledger, profiler, shown),
                            lease=lease,
                            stop=stop,
                        ).loop()
                except LeaseLostError as error:
                    log.warning("steps down: %s", error)
                finally:
                    lease.release()
                    shown.stands_by()


def _first_contact(slurm: Slurm, config: Config) -> Cluster:
    # Check rights first: a user without them gets only that error, and none about slurmdbd's files.
    if not slurm.may_operate():
        raise SlurmPermissionError(
            "This user may neither set priorities nor requeue other users' jobs",
            "Run the controller as SlurmUser or root, or give this user AdminLevel=Operator",
        )
    cluster, seen = slurm.cluster(), slurm.observe()
    # A misspelt partition would silently manage no jobs.
    if missing := missing_partitions(seen, config.manage):
        raise no_such_partitions(missing, seen)
    collect_seldom()
    return cluster


def _pause_s(failures: int, interval_s: float) -> float:
    """Return how long to wait after this many failures in a row, with exponential back-off.

    The jitter keeps many controllers from trying at the same time.
    """
    longest_s = min(LONGEST_BACKOFF_S, interval_s * 2.0 ** min(failures, MOST_DOUBLINGS))
    return random.uniform(longest_s / 2, longest_s)


class Controller:
    """The loop: runs a cycle every interval, on a nudge, and sooner while anything is under way."""

    def __init__(
        self,
        slurm: Slurm,
        cluster: Cluster,
        config: Config,
        ledger: Ledger,
        profiler: Profiler,
        instruments: Instruments,
        *,
        lease: FileLease | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Prepare the loop; with a ``lease`` it runs only for as long as that lasts."""
        self._instruments = instruments
        self._slurm = slurm
        self._cluster = cluster
        self._lease = lease
        self._stop = stop or Stop()
        self._systemd = Systemd()
        self._ledger = ledger
        self._config = config
        self._state_dir = state_dir = Path(config.controller.state_dir)
        self._shadow = config.controller.mode == SHADOW
        self._profiler = profiler
        self._left_alone: dict[str, str] = {}
        """Jobs that made a cycle fail, with the reason that is shown for them."""
        self._guesses: dict[str, str] = {}
        """By error, the job that was being processed when it was first raised."""
        self._reports: dict[str, Path] = {}
        self._progress = ProgressFolder(config.profiler.collect_dir)
        self._gpu_use = GpuUseFolder(config.profiler.collect_dir)
        self._removed = RemovedNodes(cluster.slurm_conf)
        # Even if it is not used: results that are too old are forgotten all the same.
        self._drilled = DrilledPrograms(ledger)
        drills_count = config.preemption.drilled_min_run_s > 0
        self._cycles = self._begun_anew()
        self._acted_here_s = time.monotonic()
        self._pace = Pace(config.controller.interval_s, self._acted_here_s)
        term = lease.term if lease else 0
        self._state = self._with_driver(
            publish.nothing_yet(cluster, config, self._mode(), host_name(), term)
        )
        private = cluster.jobs_are_private
        self._views = Views(self._state) if private else None
        self._services = {
            job_history.REQUEST: history_service(ledger.path, private=private),
            report_query.REQUEST: report_service(ledger.path, private=private),
            metrics_asked.REQUEST: metrics_service(instruments.metrics),
        }
        self._forecasts = Forecasts(config, ledger.path)
        asked = self._forecasts.service(lambda: self._state, private=private)
        self._services[when.REQUEST] = asked
        if self._views:
            self._services[published.VIEW] = self._views.service
        if drills_count:
            self._services[drilled.REQUEST] = self._drilled.service
        self._profiles_copy = ProfilesCopy(newest_profiles(state_dir), state_dir, private=private)
        instruments.acts(self._state)

    def loop(self) -> None:
        """Run cycles until a signal stops the controller, or another controller is to act.

        Raises ``LeaseLostError`` if another controller may act already.
        """
        with Wakeups() as wakeups:
            commands = Commands(wakeups.wake)
            with (
                signalled_when_made(self._config.controller.nudge_file),
                self._forecasts.process.running(),
                serving(self._state_dir, {**self._services, **commands.services()}),
                running(
                    self._progress.background,
                    self._profiler.folder.background,
                    self._gpu_use.background,
                ),
            ):
                self._stop.catch(nudge=self._nudge)
                log.info("controls cluster %s in %s mode", self._cluster.name, self._mode())
                if unknown := warning_about(self._cluster.version):
                    log.warning("%s", unknown)
                while not self._stop.asked:
                    if time.monotonic() >= self._pace.next_s:
                        self._cycle()
                        if self._hands_over():
                            return
                    self._systemd.tell(publish.in_a_line(self._state, time.time()))
                    self._wait(wakeups)
                    commands.carry_out(self._do)
        if not self._standbys():
            if self._mode() == ENFORCE:
                try:
                    self._cycles.take_lists_back()
                except TiresiasError as error:
                    log.warning("node lists were left on waiting jobs: %s", error)
            self._put(publish.in_mode(self._state, STOPPED))
        log.info("stopped; Slurm continues with the priorities that are set")

    def _wait(self, wakeups: Wakeups) -> None:
        """Wait until the next cycle is due, a signal arrives or a command waits."""
        look_every_s = min(
            LOOK_FOR_NUDGE_S,
            self._lease.beat_s if self._lease else LOOK_FOR_NUDGE_S,
            self._systemd.ping_every_s,
        )
        while True:
            self._sign_of_life()
            if take_nudge(self._config.controller.nudge_file):
                self._nudge(after_s=NUDGE_SETTLES_S)
            if self._removed.have_changed():
                self._nudge()
            if self._pace.next_s - time.monotonic() > PRUNING_TAKES_S:
                self._cycles.retention.prune_some(self._state.at_s)
            left_s = max(0.0, self._pace.next_s - time.monotonic())
            if wakeups.wait(min(left_s, look_every_s)) or left_s <= look_every_s:
                return

    def _hands_over(self) -> bool:
        """Whether to hand over to the standby on the host where slurmctld acts, and do so.

        It may be the only one that reaches slurmctld.
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

    def _nudge(self, after_s: float = 0.0) -> None:
        """Run the next cycle at once, or when the pace allows it.

        Several nudges in a short time cause one cycle now and one after a gap. While cycles fail,
        nudges cause at most one try per interval.
        """
        gap_s = LEAST_GAP_S
        if self._state.failures:
            gap_s = max(gap_s, self._config.controller.interval_s)
        self._pace.nudge(time.monotonic() + after_s, gap_s)

    def _mode(self) -> str:
        if self._shadow:
            return SHADOW
        return PAUSED if is_paused(self._ledger) else ENFORCE

    def _cycle(self) -> None:
        self._pace.begin(time.monotonic())
        try:
            cycle = self._cycles.run(self._mode())
            self._publish(cycle)
        except LeaseLostError:
            raise
        except TiresiasError as error:
            self._failed(error)
        except Exception as error:
            self._crashed(error)
        else:
            self._pace.end(
                time.monotonic(), wrote=cycle.outcome.writes > 0, unsettled=cycle.outcome.unsettled
            )

    def _begun_anew(self) -> Cycles:
        """Make cycles that start from the ledger alone, as after a restart."""
        return Cycles(
            *(self._slurm, self._cluster, self._ledger, self._config, self._profiler),
            left_alone=self._left_alone,
            progress=self._progress,
            meanwhile=self._sign_of_life,
            drilled=self._drilled,
            gpu_use=self._gpu_use,
            removed=self._removed,
        )

    def _crashed(self, error: Exception) -> None:
        """Report an error of this program, leave alone the job that caused it, and continue."""
        what = signature(error)
        if what not in self._reports:
            log.debug("a cycle failed of %s", what, exc_info=error)
        report = self._kept_report(error, what)
        suspects = self._cycles.culprits(self._sign_of_life) or self._guess(what)
        if len(self._left_alone) + len(suspects) > MOST_LEFT_ALONE:
            suspects = frozenset()
        for key in suspects:
            self._left_alone[key] = f"left alone after an error of the controller: {what}"
            log.error("job %s is left alone after an error of the controller: %s", key, what)
        self._cycles = self._begun_anew()
        said = " ".join(str(error).split())
        self._failed(
            InternalError(
                f"Internal error of the controller: {what}: {said}",
                f"Report it, with {report}" if report else "Report it, with the log of --verbose",
            ),
            at_once=bool(suspects),
        )

    def _guess(self, what: str) -> frozenset[str]:
        """Guess that the job being processed caused an error outside the decision.

        If leaving that job alone does not help, it is managed again, and the controller waits for
        the error to pass.
        """
        if what in self._guesses:
            self._left_alone.pop(self._guesses[what], None)
            return frozenset()
        self._guesses[what] = key = self._cycles.job_store.in_hand.key
        return frozenset({key} - {"", *self._left_alone})

    def _kept_report(self, error: Exception, what: str) -> Path | None:
        """Return the report with what the failed cycle observed; there is one for each error."""
        if what not in self._reports:
            try:
                self._reports[what] = write_report(self._state_dir, error, self._cycles.seen)
            except (OSError, ValueError) as failed:
                log.warning("the observation of the cycle cannot be saved: %s", failed)
        return self._reports.get(what)

    def _sign_of_life(self) -> None:
        if self._lease:
            self._lease.renew()
        self._systemd.ping()

    def _failed(self, error: TiresiasError, *, at_once: bool = False) -> None:
        """Report a failed cycle, and schedule the next try: ``at_once``, or after a pause.

        Nothing uncertain was acted on.
        """
        pause_s = _pause_s(self._state.failures + 1, self._config.controller.interval_s)
        pause_s = 0.0 if at_once else pause_s
        log.warning("cycle failed, next try in %.1f s: %s", pause_s, error)
        self._pace.fail(time.monotonic(), pause_s)
        self._instruments.failed(error)
        failed = publish.after_a_failure(self._state, error, time.time(), pause_s)
        self._put(publish.in_mode(failed, self._mode()))

    def _publish(self, cycle: Cycle) -> None:
        began_s = time.monotonic()
        for key in self._left_alone.keys() - {job.key for job in cycle.seen.jobs}:
            del self._left_alone[key]
        state = replace(
            self._with_driver(self._state),
            mode=self._mode(),
            cycle=self._state.cycle + 1,
            at_s=cycle.seen.at_s,
            took_s=cycle.took.all_s,
            failures=0,
            error="",
            next_try_s=None,
            standbys=self._standbys(),
            warning=self._warning(cycle.seen),
            starts_held=self._forecasts.coverage,
        )
        log.debug(
            "cycle %d: read in %.3f s, decided in %.3f s, %d writes in %.3f s",
            *(state.cycle, cycle.took.read_s, cycle.took.decide_s),
            *(cycle.outcome.writes, cycle.took.act_s),
        )
        self._put(
            publish.report(
                self._config,
                state,
                cycle.snapshot,
                cycle.plan,
                self._cycles.job_store,
                cycle.policy,
                self._ledger.events.last(EVENTS_PUBLISHED),
                [*self._cycles.features.in_order, self._forecasts],
            )
        )
        self._forecasts.offer(cycle.snapshot, acts=self._state.acts)
        self._profiles_copy.keep_up()
        self._instruments.cycled(cycle, self._state, time.monotonic() - began_s)

    def _with_driver(self, state: PublishedState) -> PublishedState:
        driver = self._slurm.driver
        return replace(state, driver=driver.name, driver_because=driver.because)

    def _warning(self, seen: Observation) -> str:
        """Describe problems of a cycle that succeeded."""
        missing = missing_partitions(seen, self._config.manage)
        wrong = str(no_such_partitions(missing, seen)) if missing else ""
        unknown = warning_about(self._cluster.version)
        alone = sorted(self._left_alone, key=job_id_key)
        left = (
            f"left alone after an error of the controller: job {', '.join(alone)}" if alone else ""
        )
        gone = self._removed.warning(seen)
        return "; ".join(said for said in (wrong, unknown, left, gone) if said)

    def _standbys(self) -> tuple[PublishedStandby, ...]:
        waiting = self._lease.standbys() if self._lease else []
        return tuple(PublishedStandby(s.host, s.pid, s.wanted) for s in waiting)

    def _put(self, state: PublishedState) -> None:
        """Publish a state; on a full disk the controller continues without publishing."""
        self._state = state
        if self._lease:
            self._lease.check()
        if self._views:
            self._views.show(state)
        self._instruments.show(state, self._ledger.path)
        try:
            published.write(state, self._state_dir, private=self._views is not None)
        except OSError as error:
            log.warning("the state cannot be published: %s", error)
            self._instruments.not_published()

    def _do(self, command: str, question: Question) -> dict[str, str]:
        """Carry out one of ``ask.COMMANDS``."""
        who, of = question.peer, question.text
        if command == "clear-node":
            self._cycles.clear_node(question.text)
            return {"mode": self._mode(), "text": f"Node {question.text} was cleared."}
        if command == "nudge":
            self._nudge()
            return {"mode": self._mode(), "text": "The next cycle runs at once."}
        text = ""
        if of:
            obey(self._cycles.job_store, command, of.split(), f"by {who}")
        elif command == "hand-back" and not self._shadow:
            # Otherwise the next cycle would manage the jobs again if not all can be handed back.
            self._pause(True, who)
            outcome = self._cycles.hand_back()
            outcome.raise_for_failures()
            text = f"Every managed job was handed back to Slurm ({outcome.writes} changes)."
        if not of:
            self._pause(command != "resume", who)
        self._cycle()
        if self._state.error:
            raise TiresiasError(self._state.error, "Its log may say more")
        return {"mode": self._mode(), "text": text}

    def _pause(self, paused: bool, who: Peer) -> None:
        if is_paused(self._ledger) != paused:
            kind = PAUSED if paused else RESUMED
            self._cycles.job_store.events.note(time.time(), kind, "", f"by {who}")
            self._cycles.job_store.commit()
        self._ledger.set_value("paused", "yes" if paused else "no")


def host_name() -> str:
    """Return the name of this host in slurm.conf: slurmctld starts under its short name only."""
    return socket.gethostname().partition(".")[0]
