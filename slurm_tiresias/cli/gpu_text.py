"""Describe what a program did with its GPUs in a sentence or two."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_tiresias.profiler.gpu_runs import GpuSummary
from slurm_tiresias.profiler.skew import MB
from slurm_tiresias.text import count

GIB = 1 << 30


def gpu_use_text(use: GpuSummary) -> str:
    """Return ``GPUs: busy 87 %, at most 61.2 of 80.0 GiB, ...``, without missing numbers."""
    seen = ", ".join(_seen(use)) or "in use, but nothing can be measured"
    runs, gpus = count(use.runs, "run"), count(use.gpus, "GPU")
    return f"GPUs: {seen}. Seen in {count(use.samples, 'sample')} of {gpus} in {runs}."


def _seen(use: GpuSummary) -> Iterator[str]:
    if use.utilization is not None:
        yield f"busy {use.utilization:.0%}"
    if use.peak_memory_bytes is not None:
        of = "" if use.memory_bytes is None else f" of {use.memory_bytes / GIB:.1f}"
        yield f"at most {use.peak_memory_bytes / GIB:.1f}{of} GiB in use"
    yield from _link("PCIe", use.pcie_sent_bytes_per_s, use.pcie_received_bytes_per_s)
    yield from _link("NVLink", use.nvlink_sent_bytes_per_s, use.nvlink_received_bytes_per_s)


def _link(name: str, sent: int | None, received: int | None) -> Iterator[str]:
    """Yield a GPU's mean rates on a link, in both directions."""
    ways = ((sent, "sent"), (received, "received"))
    rates = [f"{rate / MB:,.1f} MB/s {way}" for rate, way in ways if rate is not None]
    if rates:
        yield f"{name} {' and '.join(rates)}"
