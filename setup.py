"""Builds ketal: with KETAL_COMPILED=1 what takes each event becomes C extensions.

mypyc compiles the same source, by the types that mypy checks; nothing is written twice. Compiled
classes have no interpreted subclasses, so what is derived from one is compiled with it.
"""

import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup

PACKAGES = (
    "ketal/model/sets",
    "ketal/model/events/event_time.py",
    "ketal/model/events/type_table.py",
    "ketal/model/verdicts/bound_steps.py",
    "ketal/engine",
    "ketal/operators",
    "ketal/runtime",
    "ketal/explanation/observed_run.py",
)
INTERPRETED = (
    "ketal/engine/costs",  # reads a pattern, once
    "ketal/engine/statistics/log_names.py",  # msgspec reads it by its annotations
    "ketal/runtime/batch_run.py",  # the drivers: users derive classes from those
    "ketal/runtime/execution.py",
    "ketal/runtime/handlers.py",
    "ketal/runtime/log_verdicts.py",
    "ketal/runtime/monitor.py",
    "ketal/runtime/modes",  # public functions, whose docstrings mypyc does not keep
    "ketal/runtime/silence",  # looks at a run when it is over
    "ketal/runtime/state",  # writes records as often as somebody commits
)


def compiled_modules() -> list[str]:
    """Return the files that are compiled, in order."""
    paths = [path for one in PACKAGES for path in (Path(one), *sorted(Path(one).rglob("*.py")))]
    names = [p.as_posix() for p in paths if p.suffix == ".py" and p.name != "__init__.py"]
    return [name for name in names if not name.startswith(INTERPRETED)]


def missing() -> str:
    """Return what compiling needs and this machine has not, in words; else nothing."""
    if find_spec("mypyc") is None:
        return "no mypyc: call `make compiled`, which installs it"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC")).split()[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which(compiler) is None:
        return f"no C compiler, {compiler}: install it, or name another one in CC"
    return "" if header.exists() else f"no headers of Python, {header}: install python3-dev"


def extensions() -> list[Extension]:
    """Return what is to be compiled: nothing, unless KETAL_COMPILED asks for it."""
    if not os.environ.get("KETAL_COMPILED"):
        return []
    if lacking := missing():
        raise SystemExit(f"ketal cannot be compiled: {lacking}")
    from mypyc.build import mypycify

    options = ["--config-file", "pyproject.toml", *compiled_modules()]
    return mypycify(options, opt_level="2", multi_file=True, group_name="ketal")


if __name__ == "__main__":
    setup(ext_modules=extensions())
