"""The commands of the pages that no test types here: what runs them instead.

The one place for it. Each entry has to fit a command in some page, and to name what exists; the
options of the commands are checked against their parsers all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

NEWCOMER = "scripts/package_lib/newcomer.py"
"""A clean Debian on which the README is followed line by line: scripts/test-packages --readme."""

ELSEWHERE: Mapping[str, str] = {
    # What needs root, Debian's packages or systemd
    r"(\./)?scripts/package": NEWCOMER,
    r"apt-get .*": NEWCOMER,
    r"systemctl .*": NEWCOMER,
    r"python3 -m venv .*": NEWCOMER,
    r"/opt/slurm-tiresias/bin/pip install .*": NEWCOMER,
    r"install .*": NEWCOMER,
    r"ln -s .*": NEWCOMER,
    r"rm -r .*": NEWCOMER,
    r"(\./)?scripts/test-packages.*": "scripts/package_lib/trial.py",
    r"_TIRESIAS_SLURM_COMPLETE=.*": "scripts/package_lib/completion.py",
    r"scripts/lock.*": "tests/test_lock.py",
    # What takes minutes and more
    r"(\./)?scripts/demo": "scripts/demo_lib/main.py",
    r"(\./)?scripts/test( .*)?": ".ci/run",
    r"pytest .*": ".ci/run",
    r"(\./)?scripts/bench .*": "docs/benchmarks.md",
    r"(\./)?scripts/torture.*": "docs/reliability.md",
    r"(\./)?scripts/fidelity.*": "docs/fidelity.md",
    r"(\./)?scripts/matrix": "tests/test_matrix.py",
    r"(\./)?scripts/fuzz.*": "tests/test_fuzz.py",
    r"(\./)?scripts/test-bare": "scripts/bare_lib/main.py",
    r"(\./)?scripts/test-metrics": "tests/prometheus/test_real_prometheus.py",
    r"docker compose .*": "tests/containers",
    r"(\./)?scripts/test-containers.*": "tests/containers",
    r"make -C spank.*": "tests/spank/test_build.py",
    # What has tests of its own, with all that it needs
    r"(\./)?scripts/cluster up": "tests/slurm/test_cluster_script.py",
    r"tiresias-slurm controller.*": "tests/slurm/controller.py",
    r"tiresias-slurm ledger rebuild": "tests/faults/test_rebuild.py",
    r"tiresias-slurm ledger prune": "tests/controller/test_retention.py",
    r"tiresias-slurm ledger adopt": "tests/controller/test_ledger.py",
    r"tiresias-slurm tune .* --on-slurm .*": "tests/slurm/test_tune_on_slurm.py",
    r"tiresias-slurm profile sample .*": "tests/profiler/test_gpu_sampler.py",
    r"ssh .*": "tests/browser/test_page_live.py",
}

MAY_END_WITH: Mapping[str, set[int]] = {
    # What it finds wrong with the cluster of the tests
    r"tiresias-slurm doctor.*": {12, 13},
    # No GPU here, and none of the name in the page
    r".*tiresias-slurm profile gpu.*": {1, 2},
    # Nothing was measured here
    r"tiresias-slurm profile show train": {1, 2},
}
"""Exit codes that are right here beside 0."""
