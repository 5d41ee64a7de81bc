"""Builds ketal; with KETAL_COMPILED=1, mypyc compiles the modules that process each event.

mypyc compiles the same source, using the types that mypy checks, so nothing is written twice. An
interpreted class cannot be derived from a compiled one, so their subclasses are compiled too.
"""

import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup

PACKAGES = (
    "ketal/compiler/memo.py",
    "ketal/model/events/counter_sets.py",
    "ketal/model/events/event_time.py",
    "ketal/model/events/type_table.py",
    "ketal/model/verdicts/bound_steps.py",
    "ketal/engine",
    "ketal/operators",
    "ketal/runtime",
    "ketal/explanation/observed_run.py",
)
INTERPRETED = (
    "ketal/engine/costs",  # runs once for a pattern
    "ketal/engine/statistics/log_names.py",  # msgspec reads its annotations at run time
    "ketal/runtime/batch_run.py",  # the drivers: users may subclass them
    "ketal/runtime/execution.py",
    "ketal/runtime/handlers.py",
    "ketal/runtime/log_verdicts.py",
    "ketal/runtime/monitor.py",
    "ketal/runtime/modes",  # public functions, whose docstrings mypyc does not keep
    "ketal/runtime/silence",  # runs once, at the end of a run
    "ketal/runtime/state",  # runs once for a commit
)


def compiled_modules() -> list[str]:
    """Return the paths of the compiled modules, in order."""
    paths = [path for one in PACKAGES for path in (Path(one), *sorted(Path(one).rglob("*.py")))]
    names = [p.as_posix() for p in paths if p.suffix == ".py" and p.name != "__init__.py"]
    return [name for name in names if not name.startswith(INTERPRETED)]


def missing() -> str:
    """Return what this machine lacks to compile ketal, as text; empty if nothing."""
    if find_spec("mypyc") is None:
        return "mypyc is not installed; `make compiled` installs it"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC")).split()[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which(compiler) is None:
        return f"the C compiler {compiler} is not installed; install it, or set CC to another one"
    if header.exists():
        return ""
    return f"the Python header {header} is missing; install python3-dev"


def extensions() -> list[Extension]:
    """Return the extensions to compile; none unless KETAL_COMPILED is set."""
    if not os.environ.get("KETAL_COMPILED"):
        return []
    if lacking := missing():
        raise SystemExit(f"ketal cannot be compiled: {lacking}")
    from mypyc.build import mypycify

    options = ["--config-file", "pyproject.toml", *compiled_modules()]
    return mypycify(options, opt_level="2", multi_file=True, group_name="ketal")


if __name__ == "__main__":
    setup(ext_modules=extensions())
