"""The answers of the live page: its files, and what it shows.

All visitors see the same page: if Slurm keeps jobs private, it shows only the cluster and sums.
Answers are made on request, at most once a cycle, by the thread of the request: a page without
visitors costs a cycle nothing.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.status.job_history import LONGEST_S, JobHistory, find
from slurm_tiresias.status.privacy import seen_by
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import CompletedJob, LostTotals
from slurm_tiresias.web.http import Answer, Request
from slurm_tiresias.web.page import payload
from slurm_tiresias.web.page.content import Content, as_asked, content
from slurm_tiresias.web.page.recent import Sample, Samples

log = logging.getLogger("tiresias-slurm")

MOST_COMPLETED = 2000
PAST_EVERY_S = 15.0
"""The least time between two queries to the ledger."""

LOST_WITHIN_S = 86_400.0
"""The page sums the losses of the preemptions in this period."""

LONGEST_JOB_ID = 64
JSON = "application/json"

KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Only the page's own scripts, nothing from other sites, no markup made from text, and no other
page may embed or read it. ``no-cache``: browsers revalidate each time, and mostly get 304."""


@dataclass(frozen=True, slots=True)
class _Past:
    """Totals from the ledger; without a ledger, nothing is known."""

    completed: Sequence[CompletedJob] = ()
    lost: LostTotals | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    """The data from which answers are made."""

    etag: str
    state: PublishedState
    ledger: Path
    samples: Sequence[Sample]


class Page:
    """The page of one controller; many threads may call ``answer``, one calls ``show``."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._course = Samples()
        self._serials = itertools.count(1)
        self._born_ns = time.time_ns()
        self._making = threading.Lock()
        self._shown: _Shown | None = None
        self._made: tuple[str, Content] | None = None
        self._past: tuple[float, _Past] | None = None
        self._files = _files()

    def show(self, state: PublishedState, ledger: Path) -> None:
        """Show this state from now on, and the past from this ledger."""
        self._course.follow(state)
        etag = f"{self._born_ns:x}-{next(self._serials)}"
        self._shown = _Shown(etag, state, ledger, self._course.samples)

    def stand_by(self) -> None:
        """From now on, answer that another controller acts."""
        self._shown = None

    def answer(self, request: Request) -> Answer:
        """Answer a request for a file of the page, ``/state``, ``/words`` or ``/jobs/ID``.

        404 for any other path, and 503 before the first cycle and while this controller stands by.
        """
        found = self._files.get(request.path)
        if found is None and (request.path == "/state" or request.path.startswith("/jobs/")):
            shown = self._shown
            if shown is None:
                return refusal(503, "It has only just started, or stands by while another one acts")
            if request.path == "/state":
                found = self._state(shown)
            else:
                found = self._job(shown, unquote(request.path.removeprefix("/jobs/")))
        if found is None:
            return refusal(404, "There is nothing here; the page is at /")
        return as_asked(found, request, HEADERS)

    def _state(self, shown: _Shown) -> Content:
        with self._making:
            if self._made is None or self._made[0] != shown.etag:
                visible = seen_by(shown.state, "") if self._private else shown.state
                past = self._past_in(shown.ledger, shown.state.at_s)
                text = payload.of_cluster(visible, past.completed, past.lost, shown.samples)
                self._made = shown.etag, content(JSON, text, shown.etag)
            return self._made[1]

    def _past_in(self, ledger: Path, at_s: float) -> _Past:
        now_s = time.monotonic()
        if self._past is None or now_s - self._past[0] >= PAST_EVERY_S:
            past = _Past()
            try:
                with closing(Ledger.to_read(ledger)) as reader:
                    jobs = () if self._private else reader.jobs.completed(MOST_COMPLETED)
                    past = _Past(jobs, reader.costs.lost_since(at_s - LOST_WITHIN_S))
            except TiresiasError as error:
                log.debug("the page shows nothing of the past: %s", error)
            self._past = now_s, past
        return self._past[1]

    def _job(self, shown: _Shown, job_id: str) -> Content | None:
        if self._private or not 0 < len(job_id) <= LONGEST_JOB_ID:
            return None
        text = payload.of_job(shown.state, job_id, _history_in(shown.ledger, job_id))
        return None if text is None else content(JSON, text)


def _history_in(ledger: Path, job_id: str) -> JobHistory | None:
    try:
        until_s = time.monotonic() + LONGEST_S
        with closing(Ledger.to_read(ledger, lambda: time.monotonic() > until_s)) as reader:
            return find(reader, job_id).history
    except TiresiasError as error:
        log.debug("the page does not show a job's history: %s", error)
        return None


def refusal(status: int, why: str) -> Answer:
    """Return an answer of one line."""
    return Answer("text/plain; charset=utf-8", f"{why}\n".encode(), status, HEADERS)


def _files() -> Mapping[str, Content]:
    """Return the files of the page by request path."""
    folder = resources.files("slurm_tiresias.web.page").joinpath("static")
    found = {
        f"/{file.name}": content(kind, file.read_bytes())
        for file in folder.iterdir()
        if (kind := KINDS.get(PurePosixPath(file.name).suffix))
    }
    return {**found, "/": found["/index.html"], "/words": content(JSON, payload.words())}
