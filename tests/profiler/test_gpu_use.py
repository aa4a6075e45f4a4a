"""GPU use by UUID and PCI address; missing numbers if anything is unavailable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.errors import UsageError
from slurm_tiresias.profiler.gpu_use import GpuUse, checked_gpu

UUID = "GPU-11111111-2222-3333-4444-555555555555"
COMMAND = (sys.executable, "-m", "slurm_tiresias.cli", "profile", "gpu", "--json")
ALL_SEEN = {
    "name": "Fake H200",
    "uuid": UUID,
    "pci": "00000000:3B:00.0",
    "utilization": 0.87,
    "memory_used_bytes": 60 << 30,
    "memory_bytes": 80 << 30,
    "pcie_sent_bytes_per_s": 1_500_000,
    "pcie_received_bytes_per_s": 2_500_000,
    "nvlink_sent_bytes": 7 * 1024,
    "nvlink_received_bytes": None,
    "power": 0.75,
}


def seen(*gpus: str, **environment: str) -> list[dict[str, Any]]:
    """Return the command's output in a separate process, which loads NVML anew."""
    ended = subprocess.run(
        [*COMMAND, *gpus], env={**os.environ, **environment}, capture_output=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(ended.stdout)["gpus"]
    return found


@pytest.mark.parametrize("gpu", [UUID, "0000:3B:00.0"])
def test_a_gpu_is_found_by_its_uuid_and_by_its_pci_address(driver: str, gpu: str) -> None:
    assert seen(gpu, LD_LIBRARY_PATH=driver) == [{"gpu": gpu, **ALL_SEEN}]


def test_without_a_name_every_gpu_that_can_be_opened_is_shown(driver: str) -> None:
    assert seen(LD_LIBRARY_PATH=driver) == [{"gpu": UUID, **ALL_SEEN}]


def test_a_missing_gpu_has_no_numbers(driver: str) -> None:
    [other] = seen("GPU-99999999", LD_LIBRARY_PATH=driver)
    assert other.pop("gpu") == "GPU-99999999"
    assert set(other.values()) == {None}


def test_without_a_driver_there_are_no_numbers_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    [use] = seen(UUID, LD_LIBRARY_PATH=str(tmp_path))
    assert use == {"gpu": UUID, **dict.fromkeys(ALL_SEEN)}
    assert seen(LD_LIBRARY_PATH=str(tmp_path)) == []


def test_without_the_binding_there_are_no_numbers_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError")
    assert seen(UUID, PYTHONPATH=str(tmp_path)) == [{"gpu": UUID, **dict.fromkeys(ALL_SEEN)}]


@pytest.mark.parametrize("name", ["0", "3", "", "GPU-", "all", "GPU-$(reboot)", "0:0:0"])
def test_a_gpu_cannot_be_named_by_its_number(name: str) -> None:
    with pytest.raises(UsageError, match="does not name a GPU"):
        checked_gpu(name)


def test_the_fields_are_the_documented_ones() -> None:
    assert set(GpuUse.__dataclass_fields__) == {"gpu", *ALL_SEEN}
