"""Real torch.distributed processes that exchange the tensors of the paper's models.

Needs PyTorch: ``scripts/venv test torch`` (any build; no GPU).
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.profiler.traffic import sent_in
from tests.monitor.running import Monitor

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="no PyTorch: scripts/venv test torch"
)

TABLE_6 = {"vgg16": 0.743, "resnet50": 0.092}
"""Largest tensor over model size (paper page 500)."""

STEPS = 3

TRAINER = f"""
import sys, torch, torch.distributed as dist
rank, meeting_point = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=2)
tensors = [torch.ones(int(size) // 4) for size in sys.argv[3:]]
for _ in range({STEPS}):
    for tensor in tensors:
        dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
dist.destroy_process_group()
"""


def exchange(monitor: Monitor, sizes: list[int]) -> None:
    """Two processes; one sends tensors of these sizes to the other in each step."""
    local = replace(monitor, settings={"GLOO_SOCKET_IFNAME": "lo"})
    meeting_point = (monitor.file.parent / "meeting").as_uri()
    words = [str(size) for size in sizes]
    command = [sys.executable, "-W", "ignore", "-c", TRAINER]
    processes = [local.start(*command, rank, meeting_point, *words) for rank in ("0", "1")]
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors


@pytest.mark.parametrize("model", TABLE_6)
def test_the_measured_largest_ratio_is_that_of_the_paper(monitor: Monitor, model: str) -> None:
    sizes = list(tensor_sizes(model))
    exchange(monitor, sizes)
    section = monitor.messages()
    measured = sent_in(section)
    assert measured is not None
    assert measured.skew.ratio == pytest.approx(TABLE_6[model], rel=0.1)
    assert section.total_bytes == pytest.approx(STEPS * sum(sizes), rel=0.01)
