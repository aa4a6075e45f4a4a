"""A program's side of the channel: it reports progress, and learns when to save."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from slurm_tiresias.job.channel import Channel, ChannelError, channel_for, rank_in
from slurm_tiresias.job.ranks import Ranks
from slurm_tiresias.job.record import (
    DONE,
    LEAVING,
    MOST_BUSY_MIN,
    MOST_SAVES,
    MOST_STEPS,
    MOST_TIME_S,
    PHASE,
    RUNNING,
    SAVING,
    Record,
)
from slurm_tiresias.job.requests import LEAVE_SIGNAL, Requests, dump_stacks_on_signal
from slurm_tiresias.job.time_limit import NEVER, ends_s

SEND_EVERY_S = 1.0
"""A report that would be due sooner waits for a later one; the last one is sent at the end."""

LEAST_MARGIN_S = 60.0
"""How long before the time limit a save begins: at least this, or three times the duration of a
save."""

LEFT = 128 + LEAVE_SIGNAL
"""The exit code of a program that saved and ended on request."""

Agree = Callable[[bool], bool]
"""Whether any process of the job says yes; each must call it at the same step."""


def _alone(mine: bool) -> bool:
    return mine


class Session:
    """One program's reports, and the requests to it. Everything may also be called outside of
    Slurm.

    Parameters
    ----------
    environment
        The variables that Slurm and the plugin have set.
    clock, wall
        A monotonic clock and the time since 1970, both in seconds.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        environment = os.environ if environment is None else environment
        self._clock = clock
        self._wall = wall
        self._warned: set[str] = set()
        self._environment = environment
        self._created_in = os.getpid()
        self.requests = Requests(environment, clock)
        self._channel: Channel | None = None
        self._pid = 0
        self._due_s = -NEVER
        self._step = 0
        self._stepped = False
        self._unsent = False
        self._total: int | None = None
        self._first: tuple[int, float] | None = None
        self._saved: tuple[int | None, float | None] = (None, None)
        self._saving_s: float | None = None
        self._saves = 0
        self._resumed_step: int | None = None
        self._new_step_s: float | None = None
        self._last_save_s = clock()
        self._save_began_s = 0.0
        self._save_takes_s = 0.0
        self._saves_on_request = False
        self._asks_to_leave = False
        self._saved_to_leave = False
        self._stopped = False
        self._asked_s: float | None = None
        """The time, by ``clock``, of the request that the next save answers."""
        self._logged_s: float | None = None
        self._answered_s: float | None = None
        self._ends_s: float | None = None
        self._save_every_s: float | None = None
        self._busy: tuple[str, float | None] = "", None
        """A phase that was announced, and its end by ``clock``."""
        self._dumps = False
        self.is_the_program = True
        """Whether this process does the work, so that its stacks show where the job hangs."""
        self._ranks = Ranks(environment)

    def report(self, step: int, total: int | None = None) -> None:
        """Report that ``step`` steps are done, of ``total`` if known.

        A step is any unit that always takes about the same time: a batch, an epoch. A call costs
        well below a microsecond, except once a second. Raises ``TypeError`` unless the numbers are
        whole; impossible values are ignored, with one warning on stderr.
        """
        if type(step) is not int or (total is not None and type(total) is not int):
            step = operator.index(step)
            total = None if total is None else operator.index(total)
        if step != self._step:
            self._busy = "", None
        self._step = step
        self._total = total
        self._stepped = self._unsent = True
        if self._new_step_s is None and step > (self._resumed_step or 0):
            self._new_step_s = self._clock()
        if self._clock() >= self._due_s:
            self._ranks.follow(step, self._clock())
            self._send(RUNNING)

    def busy(self, phase: str, minutes: float) -> None:
        """Announce a phase without steps, such as an evaluation: the job does not hang meanwhile.

        The phase ends with the next step, and counts for a day at most. Raises ``ValueError``
        for a negative time.
        """
        if not minutes >= 0:
            raise ValueError(f"{minutes} is not a time in minutes. Give 0 or more.")
        name = "".join(c for c in str(phase) if PHASE.fullmatch(c))[:32]
        self._busy = name, self._clock() + 60.0 * min(minutes, MOST_BUSY_MIN)
        self._ranks.begin_anew()
        self._send(RUNNING)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark a time in which this process waits for others, such as an all-reduce: without it,
        the step times show which process is the slowest."""
        began_s = self._clock()
        try:
            yield
        finally:
            self._ranks.has_waited(self._clock() - began_s)

    def _agreed(self, agree: Agree, mine: bool) -> bool:
        if agree is _alone:
            return mine
        with self.waiting():
            return agree(mine)

    def leaving(self, agree: Agree = _alone) -> bool:
        """Whether Slurm or ``tiresias-job run`` has asked the job to save and exit."""
        self._listen()
        self._asks_to_leave = True
        return self._agreed(agree, self.requests.leave)

    def save_due(self, every_min: float = NEVER, agree: Agree = _alone) -> bool:
        """Whether to save now: on request, before the time limit, or this long after the last
        save."""
        self._listen()
        self._saves_on_request = True
        if every_min < NEVER:
            self.saves_every(every_min)
        asked = self.requests.save
        if asked and not self._save_began_s:
            self._asked_s = self.requests.asked_s
        if asked and self._saved_to_leave and not self._asks_to_leave:
            self._warn("the job was told to leave, but goes on: call job.leaving() after a save")
        mine = (
            asked
            or self._clock() - self._last_save_s >= 60.0 * every_min
            or self._wall() >= self._last_moment_s()
        )
        return self._agreed(agree, mine)

    def saves_every(self, minutes: float) -> None:
        """Announce that the program saves by itself at this interval in minutes.

        Then the time of its next save is known from the start, and the controller preempts it after
        a save rather than before one. ``save_due`` and ``steps`` announce it themselves. Raises
        ``ValueError`` for a negative interval.
        """
        if not minutes >= 0:
            raise ValueError(f"{minutes} is not an interval in minutes. Give 0 or more.")
        self._save_every_s = min(60.0 * minutes, MOST_TIME_S)

    def saving(self) -> None:
        """Report that a save begins; later requests need another save."""
        self.requests.saving_begins()
        self._asked_s = self.requests.asked_s
        self._save_began_s = self._clock()
        self._ranks.begin_anew()
        self._send(SAVING)

    def saved(self, step: int) -> None:
        """Report that a checkpoint after ``step`` steps is on the disk and can be resumed from."""
        step = operator.index(step)
        is_possible = self._is_possible(step)
        now_s = self._clock()
        self._saving_s = None
        self._saves += 1
        if self._save_began_s:
            self._save_takes_s = max(self._save_takes_s, now_s - self._save_began_s)
            self._saving_s = self._at_wall(self._save_began_s, now_s)
            self._save_began_s = 0.0
        else:
            self.requests.saving_begins()
        self._last_save_s = now_s
        if self._asked_s is not None:
            if self._asked_s != self._logged_s and is_possible:
                self._logged_s = self._asked_s
                self._say(f"saved step {step} as requested")
            self._answered_s = self._wall() - (now_s - self._asked_s)
        if self._wall() >= self._last_moment_s():
            # The save before the time limit is done; there is no second one.
            self._ends_s = NEVER
        self._saved_to_leave = self.requests.leave
        if is_possible:
            self._saved = step, self._wall()
        self._send(LEAVING if self._saved_to_leave else RUNNING)

    def resumed(self, step: int) -> None:
        """Report that the program resumes from a checkpoint after ``step`` steps; 0: from the
        start."""
        step = operator.index(step)
        if not self._is_possible(step):
            return
        if step:
            self._say(f"resumes at step {step}")
        self._resumed_step = self._step = step
        self._stepped = True
        self._new_step_s = None
        self._send(RUNNING)
        if self._channel is not None:
            self._due_s = -NEVER  # the first step is reported at once

    def done(self) -> None:
        """Report that all steps are done."""
        self._send(DONE)

    def stop(self) -> None:
        """End the loop of ``steps`` after the current step, which is saved, as if it was the last.

        Instead of ``break``, for example when the training has converged. With several processes
        each must call it in the same step.
        """
        self._stopped = True

    def listen(self) -> bool:
        """Take the signals, replacing existing handlers; return whether that was possible.

        Python allows it only in the main thread of a program, so a program whose training runs in
        another one calls it there. From then on SIGTERM no longer ends it: ask ``leaving``.
        """
        return self.requests.listen()

    def steps(
        self,
        total: int,
        save: Callable[[int], object],
        done: int = 0,
        every_min: float = 30.0,
        agree: Agree = _alone,
        agree_every: int = 1,
    ) -> Iterator[int]:
        """Yield the remaining steps, ``done`` to ``total`` - 1; report, save and exit between them.

        Parameters
        ----------
        total
            Number of steps of the whole training. ``stop`` ends it sooner.
        save
            Called after a step with the number of steps done, to write a checkpoint (``writing``).
            Every process of the job calls it at the same step. If the job was only asked to save,
            an ``OSError`` is a warning, and the training goes on.
        done
            Number of steps in the restored checkpoint; 0 if there was none.
        every_min
            Minutes between saves without a request, since a node may fail without a signal.
        agree
            With several processes, returns whether any of them says yes (``torch.any_rank``,
            ``mpi.any_rank``).
        agree_every
            Steps between two agreements, if one costs much compared to a step.

        Raises
        ------
        SystemExit
            Once the job has been told to leave and has saved (``leave``).
        TypeError, ValueError
            If a number is of the wrong kind or impossible.
        """
        total, done = _steps("total", total), _steps("done", done)
        if not every_min >= 0:
            raise ValueError(f"every_min={every_min}: give minutes, 0 or more.")
        if operator.index(agree_every) < 1:
            raise ValueError(f"agree_every={agree_every}: give 1 or more steps.")
        if done > total:
            self._warn(f"{done} steps are done already, of {total}")
        self._listen()
        self.resumed(done)
        self._stopped = False

        def loop(done: int) -> Iterator[int]:
            in_checkpoint = done
            while done < total and not self._stopped:
                try:
                    yield done
                except GeneratorExit:
                    self._warn(
                        f"the loop of job.steps was left in step {done} of {total}, the newest "
                        f"checkpoint is of step {in_checkpoint}: end it by job.stop(), and in "
                        "zip() let job.steps be the first"
                    )
                    raise
                done += 1
                self.report(done, total)
                is_last = done == total or self._stopped
                may_save = is_last or done % agree_every == 0
                if may_save and self.save_if_due(save, done, every_min, agree, is_last=is_last):
                    in_checkpoint = done
            self._stopped = False
            self.done()

        return loop(done)

    def save_if_due(
        self,
        save: Callable[[int], object],
        step: int,
        every_min: float = NEVER,
        agree: Agree = _alone,
        *,
        is_last: bool = False,
    ) -> bool:
        """Save after a step if that is due, and exit if the job was told to; return whether it has
        saved. ``steps`` does this; it is for loops of other libraries.

        The last step of the training is always saved. Other parameters are those of ``steps``.
        """
        due = self.save_due(every_min, agree)
        saved = (due or is_last) and self._save(save, step, is_last)
        # Checked after the save: requests that came during it are also answered by it.
        if due and not is_last and self.leaving(agree):
            self.leave()
        return saved

    def _save(self, save: Callable[[int], object], step: int, is_last: bool) -> bool:
        """Save; return whether that worked. A failure is the program's, unless Slurm only asked."""
        only_asked = self.requests.save and not self.requests.leave and not is_last
        self.saving()
        try:
            save(step)
        except OSError as error:
            if not only_asked:
                raise
            self._save_began_s = 0.0
            self._say(f"step {step} could not be saved, the training goes on: {error}")
            self._send(RUNNING)
            return False
        self.saved(step)
        return True

    def leave(self) -> NoReturn:
        """End the program, which has saved: raise ``SystemExit`` with ``LEFT``.

        Under ``tiresias-job run``, which exits with ``LEFT`` itself, with 0: launchers take any
        other code for a failure.
        """
        self.flush()
        raise SystemExit(0 if self.requests.by_wrapper else LEFT)

    def flush(self) -> None:
        """Send the last report, which may have been delayed."""
        if self._unsent:
            self._send(LEAVING if self.requests.leave else RUNNING)

    def _listen(self) -> None:
        if self.requests.listens:
            return
        if not self.requests.listen():
            self._warn("signals can only be taken in the main thread: call job.listen() there")
            self.requests.listens = True
        elif callable(handler := self.requests.replaced[LEAVE_SIGNAL]):
            name = getattr(handler, "__qualname__", repr(handler))
            self._warn(f"{name} no longer handles SIGTERM: the job saves after a step instead")

    def _last_moment_s(self) -> float:
        if self._ends_s is None:
            self._ends_s = ends_s(self._environment)
        return self._ends_s - max(LEAST_MARGIN_S, 3 * self._save_takes_s)

    def _open(self) -> None:
        """Open the channel at the first report: a launcher that only imports this must not keep it
        from its children."""
        self._pid = os.getpid()
        try:
            is_forked = self._pid != self._created_in
            self._channel = channel_for(self._environment, self._clock, is_forked)
        except (ChannelError, OSError) as error:
            self._warn(f"no progress is reported: {error}")
        self._dumps = self.is_the_program and dump_stacks_on_signal()
        if self._channel is None:
            return
        atexit.register(self.flush)
        if last := self._channel.last():
            self._go_on_from(last)

    def _go_on_from(self, last: Record) -> None:
        """Continue from the reports of an earlier program of this run, such as ``tiresias-job
        report``."""
        behind_s = self._wall() - self._clock()
        self._first = last.first_step, last.first_s - behind_s
        if self._saved[0] is None:
            self._saved = last.saved_step, last.saved_s
            self._saving_s = last.saving_s
        self._saves += last.saves
        if self._resumed_step is None:
            self._resumed_step = last.resumed_step
            if last.new_step_s is not None:
                self._new_step_s = last.new_step_s - behind_s
        if not self._stepped:
            self._step, self._total = last.step, last.total

    def _send(self, state: str) -> None:
        if not self._pid:
            self._open()
        elif os.getpid() != self._pid:
            if os.getppid() == self._pid:
                # A child of the reporting program, such as a data loader's worker.
                return
            # A daemon, whose parent has ended. The parent's lock lasts as long as its descriptor.
            if self._channel is not None:
                self._channel.close()
            self._open()
        channel, now_s = self._channel, self._clock()
        self._due_s = now_s + SEND_EVERY_S
        if channel is None:
            return
        self._unsent = False
        record = self._record(state, now_s)
        if record is None:
            return
        try:
            channel.send(record)
        except OSError as error:
            self._warn(f"no progress is reported any more: {error}")
            channel.close()
            self._channel = None

    def _record(self, state: str, now_s: float) -> Record | None:
        step, total = self._step, self._total
        if not self._is_possible(step):
            return None
        if total is not None and not 0 < total <= MOST_STEPS:
            self._warn(f"a total below 1 or above {MOST_STEPS} is left out", "numbers")
            total = None
        elif total is not None and step > total:
            self._warn(f"step {step} is beyond the total of {total}, which is left out", "numbers")
            total = None
        if self._first is None or step < self._first[0]:
            self._first = step, now_s
        return Record(
            step=step,
            total=total,
            at_s=self._wall(),
            first_step=self._first[0],
            first_s=self._at_wall(self._first[1], now_s),
            saved_step=self._saved[0],
            saved_s=self._saved[1],
            resumed_step=self._resumed_step,
            state=state,
            new_step_s=self._wall_or_none(self._new_step_s, now_s),
            asked_s=self._wall_or_none(self.requests.asked_s, now_s),
            saving_s=self._saving_s,
            saves=min(self._saves, MOST_SAVES),
            listens=self._saves_on_request and self.requests.reach_it,
            answered_s=self._answered_s,
            save_every_s=self._save_every_s,
            busy_until_s=self._wall_or_none(self._busy[1], now_s),
            phase=self._busy[0],
            dumps=self._dumps,
            ranks=self._ranks.told(now_s),
        )

    def _at_wall(self, steady_s: float, now_s: float) -> float:
        return max(0.0, self._wall() - (now_s - steady_s))

    def _wall_or_none(self, steady_s: float | None, now_s: float) -> float | None:
        return None if steady_s is None else self._at_wall(steady_s, now_s)

    def _is_possible(self, step: int) -> bool:
        if 0 <= step <= MOST_STEPS:
            return True
        self._warn(f"a step below 0 or above {MOST_STEPS} is not reported", "numbers")
        return False

    def _warn(self, text: str, kind: str = "") -> None:
        """Print a warning, unless one of this kind was printed; without a kind, this text."""
        if (kind or text) not in self._warned:
            self._warned.add(kind or text)
            self._print(text)

    def _say(self, text: str) -> None:
        """Print what the job log should show once, not for each process of the job."""
        if rank_in(self._environment) == 0:
            self._print(text)

    def _print(self, text: str) -> None:
        if sys.stderr is not None:
            # The program may have closed it.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"slurm_tiresias.job: {text}\n")


def _steps(name: str, value: int) -> int:
    """A number of steps; raises an error that names the argument."""
    try:
        steps = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: give a whole number of steps, such as 0.") from None
    if steps < 0:
        raise ValueError(f"{name}={steps}: give 0 or more steps.")
    return steps
