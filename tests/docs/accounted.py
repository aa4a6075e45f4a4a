"""The commands of the pages that no test types here: what runs them instead.

The one place for it. Each entry has to fit a command in some page, and to name what exists; the
options of the commands are checked against their parsers all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

NEWCOMER = "scripts/tools/packages/readme_test.py"
"""A clean Debian on which the README and docs/how-to/install.md are followed line by line:
scripts/dev packages --readme."""

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
    r"(\./)?scripts/dev packages.*": "scripts/tools/packages/package_test.py",
    r"_TIRESIAS_SLURM_COMPLETE=.*": "scripts/tools/packages/completion.py",
    r"scripts/dev lock.*": "tests/test_lock.py",
    r"(\./)?scripts/dev release": "tests/test_release.py",
    # What takes minutes and more
    r"(\./)?scripts/demo": "scripts/tools/demo/main.py",
    r"(\./)?scripts/test( .*)?": ".ci/run",
    r"pytest .*": ".ci/run",
    r"(\./)?scripts/dev bench .*": "scripts/records/benchmarks.md",
    r"(\./)?scripts/dev chaos.*": "scripts/records/reliability.md",
    r"(\./)?scripts/dev matrix": "tests/test_matrix.py",
    r"(\./)?scripts/dev fuzz.*": "tests/test_fuzz.py",
    r"scripts/dev frameworks": "scripts/tools/frameworks.py",
    r"docker compose .*": "tests/containers",
    r"(\./)?scripts/dev containers.*": "tests/containers",
    r"make -C spank.*": "tests/spank/test_build.py",
    # What has tests of its own, with all that it needs
    r"(\./)?scripts/cluster up": "tests/testbed/test_cluster.py",
    r"tiresias-slurm ledger rebuild": "tests/faults/test_rebuild.py",
    r"tiresias-slurm ledger prune": "tests/controller/test_retention.py",
    r"tiresias-slurm ledger adopt": "tests/controller/test_ledger.py",
    r"tiresias-slurm tune .* --on-slurm .*": "tests/slurm/test_tune_on_slurm.py",
    r"tiresias-slurm profile sample .*": "tests/profiler/test_gpu_sampler.py",
    r"tiresias-slurm drill .*": "tests/drill/test_on_slurm.py",
    r"sbatch --tiresias-.*": "tests/spank/test_submitting.py",
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
