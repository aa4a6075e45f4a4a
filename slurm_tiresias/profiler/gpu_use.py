"""Current GPU use from NVML: utilization, memory, and the bytes on PCIe and NVLink.

GPUs are named by UUID or PCI address, because indices are not stable: a job that sees two of eight
GPUs numbers them 0 and 1. A missing binding, driver, GPU or counter gives None, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from slurm_tiresias.errors import UsageError

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}", re.ASCII)
_PCI = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]", re.ASCII)
_ALL_LINKS = 0xFFFF_FFFF
_KIB = 1024
_KB = 1000


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU at one moment; None for a number that is not available.

    ``utilization`` is the fraction (0 to 1) of the last sampling period, up to a second, in which
    any kernel ran. PCIe is measured over 20 ms; NVLink is counted since the driver was loaded, over
    all links and without protocol overhead.
    """

    gpu: str
    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    pcie_sent_bytes_per_s: int | None = None
    pcie_received_bytes_per_s: int | None = None
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None
    power: float | None = None
    """The share of its enforced power limit that it draws."""


@dataclass(frozen=True, slots=True)
class GpuAtWork:
    """A GPU or MIG device at one moment, and the processes that compute on it."""

    use: GpuUse
    pids: frozenset[int]


def is_uuid(gpu: str) -> bool:
    return _UUID.fullmatch(gpu) is not None


def is_pci_address(gpu: str) -> bool:
    return _PCI.fullmatch(gpu) is not None


def checked_gpu(gpu: str) -> str:
    """Return a UUID or PCI address; raise ``UsageError`` for anything else, such as an index."""
    if not (is_uuid(gpu) or is_pci_address(gpu)):
        raise UsageError(
            f"{gpu[:80]!r} does not name a GPU",
            "Give its UUID or its PCI address, as nvidia-smi -L and lspci show them, not a number",
        )
    return gpu


def use_of(gpus: Sequence[str]) -> list[GpuUse]:
    """Return the use of these GPUs; if none is named, of all that this process can see."""
    for gpu in gpus:
        checked_gpu(gpu)
    with _nvml() as nvml:
        if nvml is None:
            return [GpuUse(gpu) for gpu in gpus]
        if gpus:
            by_uuid, by_pci = nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlDeviceGetHandleByPciBusId
            named = ((gpu, by_uuid if is_uuid(gpu) else by_pci) for gpu in gpus)
            return [_use(nvml, gpu, _got(nvml, find, gpu.encode("ascii"))) for gpu, find in named]
        return [_use(nvml, "", handle) for handle in _all_handles(nvml)]


def gpus_at_work() -> list[GpuAtWork] | None:
    """Return all GPUs of this machine that run a process; None if there is no driver.

    NVML is shut down again at once: an open handle would keep others from resetting a GPU.
    """
    with _nvml() as nvml:
        if nvml is None:
            return None
        devices = (part for gpu in _all_handles(nvml) for part in _parts(nvml, gpu))
        found = ((device, _pids(nvml, device)) for device in devices)
        return [GpuAtWork(_use(nvml, "", device), pids) for device, pids in found if pids]


@contextmanager
def _nvml() -> Iterator[Any]:
    """Yield the NVML binding with its library loaded; None if it is not available."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _all_handles(nvml: Any) -> Iterator[Any]:
    for number in range(_got(nvml, nvml.nvmlDeviceGetCount) or 0):
        handle = _got(nvml, nvml.nvmlDeviceGetHandleByIndex, number)
        if handle is not None:
            yield handle


def _parts(nvml: Any, gpu: Any) -> Iterator[Any]:
    """Yield a GPU's MIG devices; if MIG is off, the GPU itself."""
    mode = _got(nvml, nvml.nvmlDeviceGetMigMode, gpu)
    if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        yield gpu
        return
    for number in range(_got(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0):
        device = _got(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number)
        if device is not None:
            yield device


def _pids(nvml: Any, device: Any) -> frozenset[int]:
    """Return the processes that compute on a device, directly or through CUDA MPS."""
    asks = (
        nvml.nvmlDeviceGetComputeRunningProcesses_v3,
        nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
    )
    return frozenset(process.pid for ask in asks for process in _got(nvml, ask, device) or ())


def _got(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return NVML's answer; None if this GPU or driver does not support the query."""
    try:
        return ask(*arguments)
    except nvml.NVMLError:
        return None


def _use(nvml: Any, gpu: str, handle: Any) -> GpuUse:
    if handle is None:
        return GpuUse(gpu)
    uuid = _got(nvml, nvml.nvmlDeviceGetUUID, handle)
    name = _got(nvml, nvml.nvmlDeviceGetName, handle)
    pci = _got(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    rates = _got(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _got(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    sent, received = nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES
    nvlink_sent, nvlink_received = _nvlink_bytes(nvml, handle)
    return GpuUse(
        gpu=gpu or _text(uuid) or "",
        name=_text(name),
        uuid=_text(uuid),
        pci=_text(pci.busId) if pci is not None else None,
        utilization=rates.gpu / 100 if rates is not None else None,
        memory_used_bytes=int(memory.used) if memory is not None else None,
        memory_bytes=int(memory.total) if memory is not None else None,
        pcie_sent_bytes_per_s=_times(
            _got(nvml, nvml.nvmlDeviceGetPcieThroughput, handle, sent), _KB
        ),
        pcie_received_bytes_per_s=_times(
            _got(nvml, nvml.nvmlDeviceGetPcieThroughput, handle, received), _KB
        ),
        nvlink_sent_bytes=nvlink_sent,
        nvlink_received_bytes=nvlink_received,
        power=_power(nvml, handle),
    )


def _power(nvml: Any, handle: Any) -> float | None:
    drawn = _got(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    limit = _got(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return drawn / limit if drawn is not None and limit else None


def _nvlink_bytes(nvml: Any, handle: Any) -> tuple[int | None, int | None]:
    fields = [
        (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    ]
    values = _got(nvml, nvml.nvmlDeviceGetFieldValues, handle, fields)
    if values is None:
        return None, None
    good = nvml.NVML_SUCCESS
    first, second = (int(v.value.ullVal) if v.nvmlReturn == good else None for v in values)
    return _times(first, _KIB), _times(second, _KIB)


def _times(number: int | None, unit: int) -> int | None:
    return None if number is None else int(number) * unit


def _text(value: bytes | str | None) -> str | None:
    """Decode text, which old releases of the binding return as bytes."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
