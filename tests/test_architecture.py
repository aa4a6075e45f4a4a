"""The rules of the architecture: imports go one way, and pure modules stay pure."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "slurm_tiresias"
SHELLS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "eval",
    "exec",
}

RULES = """
errors:
owned_file:
atomic_write:
steady_clock:
warn_once:
background:
json_codec:
database: owned_file
extras: errors
gpu_hours:
model:
table:
text: gpu_hours
explanation: core gpu_hours model settings status store text
settings: errors
config: errors settings
core: model settings
job_hints: model settings
job:
slurm: errors json_codec model steady_clock warn_once
store: core database errors model owned_file settings
profiler: atomic_write background database errors job_hints model owned_file settings slurm store
profiler: warn_once
progress: atomic_write background job job_hints model owned_file profiler settings steady_clock
progress: warn_once
status: atomic_write errors json_codec model slurm store warn_once
web: errors explanation json_codec model settings status store warn_once
daemon: errors
ha: atomic_write daemon errors slurm
controller: background core daemon errors explanation extras forecast ha job job_hints json_codec
controller: model owned_file profiler progress settings slurm status store web
doctor: config controller daemon errors model profiler settings slurm status
drill: errors job job_hints model progress settings slurm
plotting: gpu_hours
simulator: core errors extras gpu_hours model plotting settings slurm
forecast: atomic_write core errors json_codec model settings simulator store
report: core gpu_hours plotting simulator status store table text
cli: atomic_write config controller core daemon doctor drill errors explanation extras gpu_hours
cli: job_hints model profiler progress report settings simulator status store table text
"""
"""What each part may import of the others, besides itself."""
MAY_IMPORT: dict[str, set[str]] = {}
for rule in RULES.split("\n")[1:-1]:
    part, _, others = rule.partition(":")
    MAY_IMPORT.setdefault(part, set()).update(others.split())

ADAPTERS = ("accelerate", "keras", "lightning", "mlflow", "mpi", "torch", "transformers")
"""The modules of ``job`` that need the framework of their name, and the packages that come with
it."""

IN_THE_CORE = {
    "features": {"job", "lifecycle", "rank"},
    "lifecycle": set(),
    "placement": {"features", "job", "rank"},
}
"""What each package of ``core`` may import of the rest of it."""

PURE = ("core", "model")
IMPURE_MODULES = {"time", "datetime", "random", "logging", "os", "pathlib", "subprocess", "socket"}


def _imports(part: str) -> Iterator[tuple[Path, str]]:
    """Every module that a part imports, with the file that does."""
    path = PACKAGE / part
    for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
        for module in _imported_by(file):
            yield file, module


@cache
def _nodes(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(file.read_text())))


def _imported_by(file: Path) -> Iterator[str]:
    for node in _nodes(file):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_go_one_way(part: str) -> None:
    for file, module in _imports(part):
        package, _, rest = module.partition(".")
        if package == "slurm_tiresias" and rest:
            assert rest.split(".")[0] in {part, *MAY_IMPORT[part]}, f"{file} imports {module}"


@pytest.mark.parametrize("package", IN_THE_CORE)
def test_imports_within_the_core_go_one_way(package: str) -> None:
    for file, module in _imports(f"core/{package}"):
        if module.startswith("slurm_tiresias.core."):
            part = module.split(".")[2]
            assert part in {package, *IN_THE_CORE[package]}, f"{file} imports {module}"


def test_the_parts_of_acting_do_not_import_each_other() -> None:
    """Except for what is under way, which they share."""
    for file, module in _imports("controller/acting"):
        if module.startswith("slurm_tiresias.controller.acting."):
            assert module.endswith(".under_way") and file.stem != "under_way", file
        assert module not in (f"slurm_tiresias.controller.{name}" for name in ("act", "cycle"))


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        # It runs with the system's Python, before anything is installed.
        ("testbed/cluster", ("scripts.testbed.cluster.",)),
        ("testbed", ("scripts.testbed.", "slurm_tiresias.")),
        ("tools", ("scripts.", "slurm_tiresias.")),
    ],
)
def test_tests_import_tools_and_tools_the_testbed_and_never_the_other_way(
    folder: str, allowed: tuple[str, ...]
) -> None:
    for file in (ROOT / "scripts" / folder).rglob("*.py"):
        for module in _imported_by(file):
            if module.split(".")[0] in ("scripts", "slurm_tiresias", "tests"):
                assert module == "scripts" or f"{module}.".startswith(allowed), (
                    f"{file} imports {module}"
                )


@pytest.mark.parametrize("part", PURE)
def test_a_decision_uses_no_clock_no_randomness_and_no_files(part: str) -> None:
    for file, module in _imports(part):
        assert module.split(".")[0] not in IMPURE_MODULES, f"{file} imports {module}"


def test_only_few_packages_start_processes() -> None:
    """The job library, which runs in users' programs, imports no part of the controller."""
    for part in MAY_IMPORT:
        for file, module in _imports(part):
            starts = part in ("forecast", "slurm", "job")
            assert module != "subprocess" or starts, f"{file} imports {module}"


def test_the_job_library_needs_nothing_but_the_standard_library() -> None:
    """Except for the modules that adapt it to a framework, which have its name."""
    for file, module in _imports("job"):
        top = module.split(".")[0]
        known = top in sys.stdlib_module_names or top in ("slurm_tiresias", "__future__")
        assert known or file.stem in ADAPTERS, f"{file} imports {module}"


def test_only_one_file_asks_which_release_of_slurm_it_is() -> None:
    for file in PACKAGE.rglob("*.py"):
        for node in _nodes(file):
            if isinstance(node, ast.Compare) and file.name != "release.py":
                sides = [node.left, *node.comparators]
                assert not any(_is_a_release(side) for side in sides), f"{file}:{node.lineno}"


def _is_a_release(side: ast.expr) -> bool:
    """A tuple like (25, 11) or a text like "25.11"."""
    try:
        value = ast.literal_eval(side)
    except ValueError:
        return False
    if isinstance(value, str):
        return re.fullmatch(r"2\d\.\d\d(\.\d+)?", value) is not None
    return isinstance(value, tuple) and len(value) >= 2 and value[0] in range(20, 40)


MOST_METHODS = 20
HAVE_MORE = {
    "ClusterState",
    "CommandSlurm",
    "Engine",
    "FreeResources",
    "Rehearsal",
    "RunJournal",
    "Session",
    "_Machine",
}
"""Classes that are still to be split, or have a method for each word of a protocol."""


def test_no_class_has_more_than_twenty_methods() -> None:
    large = set()
    for file in PACKAGE.rglob("*.py"):
        for node in _nodes(file):
            if isinstance(node, ast.ClassDef):
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                if len(methods) > MOST_METHODS:
                    large.add(node.name)
    assert large == HAVE_MORE


BECOMES_A_COMMAND = PACKAGE / "slurm" / "ended_at.py"
"""Starts a process that sets itself a time to end, and then executes a command of Slurm."""


def test_nothing_is_ever_passed_through_a_shell() -> None:
    for file in PACKAGE.rglob("*.py"):
        for node in _nodes(file):
            if isinstance(node, ast.Call):
                assert all(keyword.arg != "shell" for keyword in node.keywords), file
                called = ast.unparse(node.func)
                assert called not in SHELLS, f"{file}: {called}"
                assert not called.startswith("os.exec") or file == BECOMES_A_COMMAND, (
                    f"{file}: {called}"
                )
    for file in (ROOT / "etc").rglob("*.lua"):
        assert not re.search(r"\b(os\.execute|io\.popen|loadstring|load)\s*\(", file.read_text())


def test_every_part_of_the_package_has_an_import_rule() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - {"__init__", "__pycache__"} == MAY_IMPORT.keys()
