"""The public names of ketal, with their annotations and docstrings.

Public is what `ketal.__all__` and `ketal.trace.__all__` list and, of a class, `__init__`,
`__getitem__`, and the methods and properties without an underscore, where ketal defines them.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ketal


class Public(NamedTuple):
    """A public function, class, method or property."""

    name: str
    value: Any
    of: type | None
    """The class that it is a member of."""

    @property
    def doc(self) -> str:
        """Its docstring, as `help` shows it."""
        return inspect.getdoc(self.value) or ""


def public() -> Iterator[Public]:
    """Yield every public function and class, and their public members."""
    for module in (ketal, ketal.trace):
        for name in module.__all__:
            value = getattr(module, name)
            yield Public(name, value, None)
            if inspect.isclass(value):
                yield from _members(name, value)


def _members(name: str, cls: type) -> Iterator[Public]:
    for member in dir(cls):
        owner = next(one for one in cls.__mro__ if member in vars(one))
        if not owner.__module__.startswith("ketal"):
            continue
        found = inspect.getattr_static(cls, member)
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
        shown = member in ("__init__", "__getitem__") or not member.startswith("_")
        if shown and (inspect.isfunction(found) or isinstance(found, property)):
            yield Public(f"{name}.{member}", found, cls)


def hints(one: Public) -> dict[str, Any]:
    """Return the annotations of a function, of a property's result, or of a class's fields."""
    target = one.value.fget if isinstance(one.value, property) else one.value
    if not (inspect.isfunction(target) or inspect.isclass(target)):
        return {}
    owner = inspect.getmodule(target)
    assert owner is not None
    return typing.get_type_hints(target, localns={**_for_types_only(owner), **vars(owner)})


def _for_types_only(module: Any) -> dict[str, Any]:
    """Return the names that a module imports for its annotations only."""
    names: dict[str, Any] = {}
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            continue
        for line in node.body:
            if isinstance(line, ast.ImportFrom):
                home = importlib.import_module(line.module or "")
                names |= {alias.name: getattr(home, alias.name) for alias in line.names}
            elif isinstance(line, ast.Import):
                names |= {alias.name: importlib.import_module(alias.name) for alias in line.names}
    return names


def holds_any(annotation: Any) -> bool:
    """Return whether an annotation is or contains `Any`."""
    return annotation is Any or any(map(holds_any, typing.get_args(annotation)))


def examples(doc: str, name: str = "") -> list[doctest.Example]:
    """Return the examples of a docstring."""
    return doctest.DocTestParser().get_examples(doc, name)
