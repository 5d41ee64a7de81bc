"""The output of `help(ketal)`: types, examples that run, no internal references."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import ketal
from ketal.analysis import registered_guards as guards
from tests.public_names import Public, examples, hints, holds_any, public

PUBLIC = {one.name: one for one in public()}

JSON = "a JSON object"
VALUES = "values of attributes, of every class that an event takes, numpy's among them"
ANY = {
    "Event.data": VALUES,
    "Match.returns": VALUES,
    "Tracer.event": "what a function takes and gives",
    "Tracer.joined": "a task of any result",
    "KafkaSink.__init__": "a producer, of any class",
    "TopicCollector.__init__": "a consumer, of any class",
    "TracedThread.__init__": "a target that takes and gives what it does",
    **dict.fromkeys(
        (f"TracedQueue.{name}" for name in ("__init__", "get", "get_nowait", "put", "put_nowait")),
        "the queue's own items and arguments",
    ),
    **{name: JSON for name in PUBLIC if name.endswith(".to_dict")},
}
"""Where `Any` is allowed, and why."""

UNDOCUMENTED = {"Verdict": "a union of classes, which have theirs"}
"""Names without their own docstring, and why."""


def test_any_is_annotated_only_where_listed() -> None:
    found = set()
    for name, one in PUBLIC.items():
        for parameter, annotation in hints(one).items():
            if holds_any(annotation):
                found.add(f"{name}.{parameter}" if inspect.isclass(one.value) else name)
    assert found == set(ANY)


def _used(one: Public) -> bool:
    """Return whether the class of a member uses it in its examples."""
    of = one.name.partition(".")[0]
    member = one.name.rpartition(".")[2]
    used = re.compile(rf"""\.{member}\b|, "{member}"\)""")
    return any(used.search(example.source) for example in examples(PUBLIC[of].doc))


def test_every_public_name_has_an_example() -> None:
    """In its docstring, or (for members, always for constructors) in that of its class."""
    bare = [
        name
        for name, one in PUBLIC.items()
        if name not in UNDOCUMENTED
        and not name.endswith(".__init__")
        and not examples(one.doc)
        and not (one.of is not None and _used(one))
    ]
    assert bare == []


@pytest.mark.parametrize("name", [name for name, one in PUBLIC.items() if ">>> " in one.doc])
def test_examples_of_docstrings_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guards, "_registry", {})
    monkeypatch.chdir(tmp_path)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    result = runner.run(parser.get_doctest(PUBLIC[name].doc, {}, name, name, 0))
    assert result.attempted
    assert result.failed == 0, capsys.readouterr().out


def test_every_parameter_is_described() -> None:
    """By name in the function's docstring; a constructor's in that of its class."""
    missing = []
    for name, one in PUBLIC.items():
        if not inspect.isfunction(one.value) or name == "Limits.__init__":
            continue  # `ketal limits` describes each limit.
        doc = PUBLIC[name.partition(".")[0]].doc if name.endswith(".__init__") else one.doc
        for parameter in inspect.signature(one.value).parameters.values():
            if parameter.name in ("self", "cls"):
                continue
            if not re.search(rf"\b{parameter.name}\b", doc):
                missing.append(f"{name}: {parameter.name}")
    assert missing == []


def test_every_field_of_a_class_is_described() -> None:
    missing = []
    for name, one in PUBLIC.items():
        if inspect.isclass(one.value) and name != "Limits":
            fields = [f for f in one.value.__annotations__ if not f.startswith("_")]
            fields = [f for f in fields if f != "kind"]
            missing += [f"{name}.{f}" for f in fields if not re.search(rf"\b{f}\b", one.doc)]
    assert missing == []


HOUSE = re.compile(
    r"\b(?:DESIGN|INTERFACE|STYLE)\b|\bFig\.|\bsections? \d|§|\bpaper\b|\bissue \d", re.I
)
"""References that only the project's developers understand."""


def test_no_docstring_refers_to_internal_documents() -> None:
    docs = {"ketal": ketal.__doc__ or "", **{name: one.doc for name, one in PUBLIC.items()}}
    assert len(docs) > 100
    assert {name: HOUSE.findall(doc) for name, doc in docs.items() if HOUSE.search(doc)} == {}


def test_all_equals_the_lazily_loaded_names() -> None:
    assert sorted(ketal.__all__) == sorted(ketal._HOMES)
