"""What the core is told of an observation."""

from __future__ import annotations

from slurm_tiresias.controller.feed import Backoffs, Feed
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.slurm.protocol import Observation


def fed(feed: Feed, seen: Observation) -> Snapshot:
    """Let the feed follow an observation; return what it has told the core."""
    feed.follow(seen, Backoffs())
    return Snapshot(seen.at_s, feed.nodes, tuple(feed.jobs.values()))
