"""The controller's instruments: its metrics and the live page."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_tiresias.controller.cycle import Cycle
from slurm_tiresias.controller.metrics_asked import NEEDED
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.extras import how_to_install
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.slurm.tally import Tally
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.web.http import Listener
from slurm_tiresias.web.page.page import Page

if TYPE_CHECKING:
    from slurm_tiresias.controller.metrics import Metrics

log = logging.getLogger("tiresias-slurm")


@dataclass(frozen=True, slots=True)
class Instruments:
    """The metrics and the page; each is None if there is none."""

    metrics: Metrics | None = None
    page: Page | None = None

    def acts(self, state: PublishedState) -> None:
        """Called when this controller begins to act."""
        if self.metrics:
            self.metrics.acts(state)

    def stands_by(self) -> None:
        """Called when another controller acts."""
        if self.metrics:
            self.metrics.stands_by()
        if self.page:
            self.page.stand_by()

    def cycled(self, cycle: Cycle, state: PublishedState, publishing_s: float) -> None:
        if self.metrics:
            self.metrics.cycled(cycle, state, publishing_s)

    def failed(self, error: TiresiasError) -> None:
        """Called when a cycle has failed."""
        if self.metrics:
            self.metrics.failed(error)

    def show(self, state: PublishedState, ledger: Path) -> None:
        if self.metrics:
            self.metrics.show(state)
        if self.page:
            self.page.show(state, ledger)

    def not_published(self) -> None:
        """Called when the state could not be written to its file."""
        if self.metrics:
            self.metrics.not_published()


@contextmanager
def instruments(config: Config, cluster: Cluster, asked: Tally) -> Iterator[Instruments]:
    """Yield the metrics and the live page, and serve them over HTTP if ``http.listen`` is set.

    Without the Prometheus library there are no metrics, and without an address no page.
    """
    metrics = _metrics(config, cluster, asked)
    if not config.http.listen:
        yield Instruments(metrics)
        return
    page = Page(private=cluster.jobs_are_private)
    pages = {"/metrics": metrics.page} if metrics else {}
    with Listener(config.http.listen, pages, page.answer).open():
        yield Instruments(metrics, page)


def _metrics(config: Config, cluster: Cluster, asked: Tally) -> Metrics | None:
    try:
        from slurm_tiresias.controller.metrics import Metrics
    except ImportError as error:
        if config.http.listen:
            log.warning("there are no metrics: %s. Do: %s", error, how_to_install((NEEDED,)))
        return None
    return Metrics(cluster, config, asked)
