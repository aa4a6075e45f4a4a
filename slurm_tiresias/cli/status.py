"""``tiresias-slurm status``: the queue as the controller sees it.

It reads what the controller published and never queries slurmctld.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from slurm_tiresias.cli import columns as job_columns
from slurm_tiresias.cli import complete
from slurm_tiresias.cli.columns import (
    COLUMNS,
    LEAST_REASON,
    LEAST_REASON_IN_SHADOW,
    NODES_OR_REASON,
    STATE_CODES,
    help_on_columns,
)
from slurm_tiresias.cli.options import (
    checked_words,
    complain_if_not_current,
    is_named_by,
    job_ids,
    takes_config,
    words,
)
from slurm_tiresias.cli.screen import WIDE_GAP, Screen, shares, show_or_json, stdout
from slurm_tiresias.errors import NotRunningError, RefusedError, TiresiasError, UsageError
from slurm_tiresias.explanation import progress
from slurm_tiresias.explanation.folded import folded
from slurm_tiresias.explanation.reasons import MODE_TEXTS
from slurm_tiresias.gpu_hours import exact_gpu_hours
from slurm_tiresias.settings import Config
from slurm_tiresias.status import published
from slurm_tiresias.status.published import STOPPED, PublishedJob, PublishedState, PublishedTier
from slurm_tiresias.table import Column
from slurm_tiresias.text import cells, count, duration, listed, moment, pad, printable, shorten

Columns = Sequence[Column[PublishedJob]]

GPU_BAR_CELLS = 40
TIER_BAR_CELLS = 20
LEAST_BAR_CELLS = 4
MOST_ON_TERMINAL = 200
"""Most jobs listed on a terminal; more would scroll off the screen anyway."""
MOST_NAMES_EXPLAINED = 3

DEFAULT_WATCH_S = 2.0
PAUSED = "paused"
"""The name of a mode, and of the event of entering it."""
MODE_LOOKS = {"enforce": "good", "shadow": "note", "paused": "note", STOPPED: "bad"}


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects jobs; an empty field selects all. Jobs named by id are shown even if not managed."""

    users: frozenset[str] = frozenset()
    job_ids: tuple[str, ...] = ()
    partitions: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tiers: frozenset[str] = frozenset()
    everyone: bool = False

    def of(self, jobs: Sequence[PublishedJob]) -> tuple[PublishedJob, ...]:
        return tuple(job for job in jobs if self._wants(job) and self._shows(job))

    def hidden(self, jobs: Sequence[PublishedJob]) -> int:
        """Return how many jobs are hidden only because they are not managed."""
        return sum(1 for job in jobs if self._wants(job) and not self._shows(job))

    def _shows(self, job: PublishedJob) -> bool:
        return job.managed or self.everyone or bool(self.job_ids)

    def _wants(self, job: PublishedJob) -> bool:
        state_names = (job.slurm_state, job_columns.state_code(job), job.state.upper())
        return (
            (not self.users or job.user in self.users)
            and (not self.job_ids or any(is_named_by(job.job_id, i) for i in self.job_ids))
            and (not self.partitions or not self.partitions.isdisjoint(job.partition.split(",")))
            and (not self.states or not self.states.isdisjoint(state_names))
            and (not self.tiers or str(job.tier) in self.tiers)
        )


def _states(states: Sequence[str]) -> frozenset[str]:
    known = {*STATE_CODES, *STATE_CODES.values()}
    for state in states:
        if state.upper() not in known:
            raise UsageError(
                f"There is no job state {printable(state)!r}",
                f"There are: {', '.join(STATE_CODES)}",
            )
    return frozenset(state.upper() for state in states)


def _tiers(tiers: Sequence[str]) -> frozenset[str]:
    for tier in tiers:
        if not (tier.isascii() and tier.isdigit()):
            raise UsageError(f"{printable(tier)!r} is not a tier", "Write a number; 0 is highest")
    return frozenset(str(int(tier)) for tier in tiers)


@click.command(
    epilog="\b\nColumns:\n" + "\n".join("  " + line for line in help_on_columns().splitlines())
)
@click.option("--me", is_flag=True, help="Only my jobs.")
@click.option(
    "-u",
    "--user",
    metavar="USER,..",
    callback=words,
    shell_complete=complete.of_state(complete.users),
    help="Only jobs of these users.",
)
@click.option(
    "-j",
    "--jobs",
    metavar="JOBID,..",
    callback=checked_words(job_ids),
    shell_complete=complete.of_state(complete.jobs),
    help="Only these jobs; 12 also names the tasks 12_3 of its array.",
)
@click.option(
    "-p",
    "--partition",
    metavar="PART,..",
    callback=words,
    shell_complete=complete.of_state(complete.partitions),
    help="Only these partitions.",
)
@click.option(
    "-t",
    "--states",
    metavar="STATE,..",
    callback=checked_words(_states),
    shell_complete=complete.states,
    help="Only these states: R, PENDING, ..",
)
@click.option(
    "--tier",
    metavar="TIER,..",
    callback=checked_words(_tiers),
    shell_complete=complete.of_state(complete.tiers),
    help="Only these tiers; 0 is highest.",
)
@click.option("-a", "--all", "everyone", is_flag=True, help="Also jobs that are not managed.")
@click.option(
    "-o",
    "--format",
    "wanted",
    metavar="COLUMN,..",
    envvar="TIRESIAS_STATUS_FORMAT",
    show_envvar=True,
    callback=checked_words(job_columns.checked),
    shell_complete=complete.columns,
    help="These columns; +COLUMN,.. adds to the default ones.",
)
@click.option(
    "-S",
    "--sort",
    metavar="[+-]COLUMN,..",
    callback=checked_words(job_columns.checked_sort),
    shell_complete=complete.columns,
    help="Sort jobs by these columns, - downwards; otherwise by the controller's own order.",
)
@click.option(
    "-l",
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"At most N jobs, 0: all. By default {MOST_ON_TERMINAL} on a terminal, and all elsewhere.",
)
@click.option(
    "-r",
    "--array",
    "every_task",
    is_flag=True,
    help="One line per task of an array, even for tasks that wait alike.",
)
@click.option("-n", "--noheader", is_flag=True, help="Only the rows of the jobs table.")
@click.option(
    "--json", "as_json", is_flag=True, help="The published state, with the selected jobs."
)
@click.option(
    "-w",
    "--watch",
    "watch_s",
    metavar="[SECONDS]",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=DEFAULT_WATCH_S,
    help="Refresh until interrupted.",
)
@takes_config
def status(
    config: Config,
    me: bool,
    user: tuple[str, ...],
    jobs: tuple[str, ...],
    partition: tuple[str, ...],
    states: frozenset[str],
    tier: frozenset[str],
    everyone: bool,
    wanted: tuple[str, ...],
    sort: tuple[str, ...],
    limit: int | None,
    every_task: bool,
    noheader: bool,
    as_json: bool,
    watch_s: float | None,
) -> None:
    """Show the controller, the tiers and the jobs.

    Reads the state that the controller published last; never queries slurmctld. Exit code 3: no
    controller runs, or its published state is out of date (it is shown nevertheless). Exit code 1:
    none of the jobs named with -j exists. Tasks of an array that wait in the same way share a line.
    """
    selection = Selection(
        users=frozenset(user) | ({_my_name()} if me else frozenset()),
        job_ids=jobs,
        partitions=frozenset(partition),
        states=states,
        tiers=tier,
        everyone=everyone,
    )
    columns = job_columns.chosen(wanted)
    view = View(selection, columns, bool(wanted), not noheader, limit, sort, every_task)
    state_dir = Path(config.controller.state_dir)
    if watch_s is not None:
        _watch(state_dir, view, watch_s, as_json)
        return
    state, now_s = published.read(state_dir), time.time()
    _check_known(selection.job_ids, state, now_s)
    show_or_json(
        as_json,
        lambda: asdict(replace(state, jobs=selection.of(state.jobs))),
        lambda screen: view.lines(state, screen, now_s),
    )
    complain_if_not_current(state, now_s)


def _check_known(job_ids: Sequence[str], state: PublishedState, now_s: float) -> None:
    """Raise an error, like squeue, if none of the requested jobs exists."""
    known = any(is_named_by(job.job_id, given) for given in job_ids for job in state.jobs)
    if not job_ids or known:
        return
    complain_if_not_current(state, now_s)
    whose = f" of {printable(state.only_of)}, who may see no others," if state.only_of else ""
    raise TiresiasError(
        f"No job {listed(tuple(job_ids))}{whose} waits or runs here: it has ended, was submitted "
        "just now, or the id is wrong",
        f"See its history with: tiresias-slurm history {job_ids[0]}",
    )


def _my_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise UsageError(
            f"User id {os.getuid()} has no name on this machine", "Name the user with --user"
        ) from None


@dataclass(frozen=True, slots=True)
class View:
    """How a state is shown.

    ``as_asked``: the columns were chosen, so none is dropped. ``limit``: most lines; 0 for no
    limit, None for the default limit on terminals only. ``every_task``: pending array tasks are not
    folded.
    """

    selection: Selection
    columns: Columns
    as_asked: bool = False
    header: bool = True
    limit: int | None = None
    sort: tuple[str, ...] = ()
    every_task: bool = False

    def lines(self, state: PublishedState, screen: Screen, now_s: float) -> Iterator[str]:
        if self.header:
            yield from header_lines(state, screen, now_s)
            yield ""
            yield from tier_lines(state, screen)
            yield ""
        yield from self._job_lines(state, screen)

    def _job_lines(self, state: PublishedState, screen: Screen) -> Iterator[str]:
        found = job_columns.sorted_by(self.sort, self.selection.of(state.jobs))
        rows = [(job, 1) for job in found] if self.every_task else folded(found)
        limit = self.limit
        if limit is None and screen.width is not None:
            limit = MOST_ON_TERMINAL
        jobs = [job for job, _ in rows[: limit or None]]
        columns = wanted = self.columns
        if not self.as_asked:
            wanted = screen.columns_with_content(self.columns, jobs)
            columns = _that_fit(wanted, jobs, screen, state.acts)
        if jobs:
            yield from screen.whole_table(columns, jobs, self.header)
        if self.header:
            missing = [column.title for column in wanted if column not in columns]
            yield from self._footer(state, rows, len(jobs), missing, screen)
            yield from _why_longer(jobs, screen)

    def _footer(
        self,
        state: PublishedState,
        rows: Sequence[tuple[PublishedJob, int]],
        shown: int,
        missing: Sequence[str],
        screen: Screen,
    ) -> Iterator[str]:
        jobs = sum(number for _, number in rows)
        what = count(jobs, "job")
        if len(rows) < jobs:
            what = f"{count(len(rows), 'line')} for {what}"
        said = [what if jobs else "No jobs"]
        if shown < len(rows):
            said = [f"The first {shown:,} of {what} (-l 0 shows all)"]
        if len(rows) < jobs:
            said.append("-r shows each task of an array")
        if hidden := self.selection.hidden(state.jobs):
            said.append(f"{hidden:,} not managed and not shown (-a shows all)")
        if state.only_of:
            said.append(f"jobs are private here: only those of {printable(state.only_of)}")
        # Without NODES, the last column shows the nodes.
        if named := [title for title in missing if title not in ("NODES", "REASON")]:
            said.append(f"no room for {', '.join(named)} (choose with -o)")
        yield from screen.prose("; ".join(said) + ".", indent="", look="quiet")


def _why_longer(jobs: Sequence[PublishedJob], screen: Screen) -> Iterator[str]:
    """Yield to a user why jobs get longer runs, once for each name; nothing for several users."""
    if len({job.user for job in jobs}) > 1:
        return
    named = {job.name: job for job in reversed(jobs) if job.stuck_runs or job.program_lost}
    for job in sorted(named.values(), key=lambda job: job.job_id)[:MOST_NAMES_EXPLAINED]:
        for sentence in progress.longer_runs(job):
            said = f"Job {printable(job.job_id)}: {sentence}"
            yield from screen.prose(said, indent="", look="note")


def _that_fit(
    columns: Columns, jobs: Sequence[PublishedJob], screen: Screen, acts: bool
) -> Columns:
    """Return the columns that fit; if NODES is dropped, the last column shows the nodes."""
    least = LEAST_REASON if acts else LEAST_REASON_IN_SHADOW
    reason, instead = COLUMNS["REASON"], replace(NODES_OR_REASON, least=least)
    wanted = [replace(reason, least=least) if column is reason else column for column in columns]
    fitting = screen.columns_that_fit(wanted, jobs)
    if COLUMNS["NODES"] in fitting:
        return fitting
    without = [column for column in wanted if column.title != "NODES"]
    wanted = [instead if column.title == reason.title else column for column in without]
    return screen.columns_that_fit(wanted, jobs)


def header_lines(state: PublishedState, screen: Screen, now_s: float) -> Iterator[str]:
    """Yield the controller's mode, policy and last cycle, and how the GPUs are used."""
    age = f"cycle {state.cycle}, {duration(now_s - state.at_s)} ago"
    mode = printable(state.mode)
    yield from screen.flow(
        [
            screen.style(printable(state.cluster) or "(unnamed cluster)", "title"),
            f"Slurm {printable(state.slurm_version)} by {printable(state.driver)}",
            f"{printable(state.policy)}, order {printable(state.order)}",
            screen.style(mode, MODE_LOOKS.get(mode, "")),
            screen.style(f"STALE: {age}", "bad") if state.is_stale(now_s) else age,
        ]
    )
    if state.mode in MODE_TEXTS:
        said = MODE_TEXTS[state.mode]
        pauses = [event for event in state.events if event.kind == PAUSED]
        if state.mode == PAUSED and pauses:
            said += f" Paused {printable(pauses[-1].text)}, {moment(pauses[-1].at_s)}."
        yield from screen.prose(said, indent="", look="note")
    if state.driver_because:
        said = f"Not through pyslurm: {printable(state.driver_because)}."
        yield from screen.prose(said, indent="", look="quiet")
    if state.term:
        waiting = ", ".join(printable(standby.host) for standby in state.standbys)
        stands_by = f"{waiting} stands by" if waiting else "no standby"
        said = f"{printable(state.host)} acts (term {state.term}); {stands_by}."
        yield from screen.prose(said, indent="")
    if state.failures:
        again = ""
        if state.next_try_s is not None and state.next_try_s > now_s:
            again = f", next try in {duration(state.next_try_s - now_s)}"
        failed = f"{count(state.failures, 'cycle')} failed since{again}: {printable(state.error)}"
        yield from screen.prose(failed, indent="", look="bad")
    if state.warning:
        yield from screen.prose(printable(state.warning), indent="", look="bad")
    if suspects := [node for node in state.nodes if node.is_suspect]:
        named = listed(tuple(f"{one.name} ({one.evidence})" for one in suspects))
        said = f"{count(len(suspects), 'node')} suspected: {printable(named)}. See: nodes."
        yield from screen.prose(said, indent="", look="note")
    yield from _gpu_lines(state, screen)


def _gpu_lines(state: PublishedState, screen: Screen) -> Iterator[str]:
    gpus = state.gpus
    if not gpus.total:
        yield from screen.prose("No GPUs in the managed partitions.", indent="")
        return
    parts = (
        ("█", "good", gpus.managed, "managed"),
        ("▓", "other", gpus.others, "others"),
        ("░", "quiet", gpus.idle, "idle"),
        ("x", "bad", gpus.down, "down"),
    )
    title = f"GPUs {gpus.total}"
    room = GPU_BAR_CELLS if screen.width is None else screen.width - cells(title) - 2
    widths = shares([part[2] for part in parts], min(GPU_BAR_CELLS, room))
    bar = "".join(
        screen.style(mark * width, look)
        for (mark, look, _, _), width in zip(parts, widths, strict=True)
    )
    legend = [f"{screen.style(mark, look)} {n} {name}" for mark, look, n, name in parts]
    whole = WIDE_GAP.join([f"{title}  {bar}".rstrip(), *legend])
    yield from [whole] if screen.fits(whole) else [f"{title}  {bar}".rstrip(), *screen.flow(legend)]


def tier_lines(state: PublishedState, screen: Screen) -> Iterator[str]:
    """Yield the tiers: range of attained service, and running and pending jobs of each."""
    counts: list[Column[PublishedTier]] = [
        Column("TIER", lambda tier: f"{tier.tier}", right=True),
        Column("ATTAINED", _service_range, least=8, goes=3),
        Column("RUN", lambda tier: f"{tier.running_jobs}", right=True),
        Column("GPUS", lambda tier: f"{tier.running_gpus}", right=True, goes=1),
        Column("PEND", lambda tier: f"{tier.pending_jobs}", right=True),
        Column("GPUS", lambda tier: f"{tier.pending_gpus}", right=True, goes=2),
    ]
    width = TIER_BAR_CELLS
    if screen.width is not None:
        without_bars = max(map(cells, Screen().table(counts, state.tiers)))
        width = min(TIER_BAR_CELLS, (screen.width - without_bars) // 2 - 1)
    # A full bar is the whole cluster; pending jobs may ask for many times as much.
    there = max(state.gpus.total, *(tier.running_gpus for tier in state.tiers), 0)
    requested = max(there, *(tier.pending_gpus for tier in state.tiers), 0)

    def bar(mark: str, part: int, whole: int) -> str:
        """Return a bar for this part of the whole, at least one mark long if the part is not 0."""
        return pad(mark * shares([part, whole - part], width)[0], width)

    if width >= LEAST_BAR_CELLS:
        counts = [
            *counts[:4],
            Column("", lambda t: bar("█", t.running_gpus, there), look=lambda _: "good"),
            *counts[4:],
            Column("", lambda t: bar("▒", t.pending_gpus, requested), look=lambda _: "note"),
        ]
    yield from screen.table(counts, state.tiers)


def _service_range(tier: PublishedTier) -> str:
    if tier.to_gpu_s is None:
        return f"from {exact_gpu_hours(tier.from_gpu_s)}" if tier.from_gpu_s else "any"
    if not tier.from_gpu_s:
        return f"below {exact_gpu_hours(tier.to_gpu_s)}"
    low, high = exact_gpu_hours(tier.from_gpu_s), exact_gpu_hours(tier.to_gpu_s)
    return f"{low.removesuffix(high.lstrip('0123456789.,'))} to {high}"


def _watch(state_dir: Path, view: View, every_s: float, as_json: bool) -> None:
    """Show the state in place until interrupted."""
    if stdout().width is None or as_json:
        raise UsageError("--watch needs a terminal, and no --json", "Leave --watch out")
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    # With redirection off, standard output still has its own encoding and width in each refresh.
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
        while True:
            shown = cut(_picture(state_dir, view), console.height, console.width)
            live.update(Text.from_ansi("\n".join(shown), no_wrap=True), refresh=True)
            time.sleep(every_s)


def _picture(state_dir: Path, view: View) -> list[str]:
    screen = stdout()
    try:
        state, now_s = published.read(state_dir), time.time()
    except (NotRunningError, RefusedError) as error:
        return screen.prose(printable(str(error)), indent="", look="bad")
    return [screen.encodable(line) for line in view.lines(state, screen, now_s)]


def cut(lines: list[str], height: int, width: int) -> list[str]:
    """Return as many lines as fit; if some do not, the last says how many are missing."""
    if len(lines) <= height:
        return lines
    more = f"{count(len(lines) - height + 1, 'more line')}: choose with --me, -u, -p, -t"
    return [*lines[: height - 1], shorten(more, width)]
