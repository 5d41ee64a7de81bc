"""Clocks as text, in the forms that systems and papers write them.

    {"n1":3,"n2":5}           JSON, as in the logs of ShiViz and GoVector
    [n1:3,n2:5]               a version vector, as in "Causality is Graphically Simple"
    [n1:3,n2:5]s7             a dotted version vector: context, server, number
    version(1:3, 2:5)         a version vector as Voldemort prints it, ` ts:` and a time behind it
    ((1, 0), (1, 2, 0))       an interval tree clock: identity and events, as in its paper

Of each form one function writes it and one reads it; `literal` of `ketal.clocks.interval_tree`
writes the last one. The headers of messages have a form of their own:
`ketal.clocks.texts.member_list`.

The one rule: what is written is read as it was. A form without escapes refuses a name that it
cannot write; a text that is none of the form is an `EventError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from ketal.clocks.interval_tree import (
    DEPTH_MAX,
    Events,
    Identity,
    IntervalTreeClock,
    IntervalTreeClocks,
    join,
)
from ketal.clocks.scheme import Clock, counter_of
from ketal.clocks.versions.version_vectors import Version
from ketal.errors import EventError

_COUNTER = re.compile(r"[0-9]{1,19}", re.ASCII)
_NAME = re.compile(r"[^\s,:\[\]()](?:[^,:\[\]()]*[^\s,:\[\]()])?")
_VECTOR = re.compile(r"\[([^\[\]]*)\]")
_DOTTED = re.compile(r"(\[[^\[\]]*\])(.*?)([0-9]{1,19})", re.ASCII | re.DOTALL)
_STORE = re.compile(r"version\(([^()]*)\)(?: ts:[0-9]+)?", re.ASCII)
_TREES = re.compile(r"[0-9(), ]+", re.ASCII)


def json_text(clock: Clock) -> str:
    """Return a clock as a JSON object, names sorted, without blanks."""
    return msgspec.json.encode(dict(sorted(clock.items()))).decode()


def json_clock(text: str | bytes) -> dict[str, int]:
    """Return the clock of a JSON object, zeros dropped.

    Raises
    ------
    EventError
        If the text is no object of counters.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as wrong:
        raise EventError(f"clock: {_short(text)} is no JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise EventError(f'clock: {_short(text)} is no object of counters: {{"a":1,"b":2}}')
    return _clock((name, _count(count, name)) for name, count in value.items())


def vector_text(vector: Clock) -> str:
    """Return a version vector: `[a:1,b:2]`.

    Raises
    ------
    ValueError
        If the form cannot write a name.
    """
    return f"[{','.join(_pairs(vector))}]"


def vector_of(text: str) -> dict[str, int]:
    """Return the version vector of a text, zeros dropped.

    Raises
    ------
    EventError
        If the text is none.
    """
    if (match := _VECTOR.fullmatch(text.strip())) is None:
        raise EventError(f"clock: {_short(text)} is no version vector: [a:1,b:2]")
    return _clock(_read_pairs(match[1], text))


def version_text(version: Version) -> str:
    """Return the name of a version: `[a:1,b:2]s3` is version 3 of s, by who had read a1 and b1-2.

    Raises
    ------
    ValueError
        If the form cannot write a name: that of the server ends in a digit, or one has a character
        of the form.
    """
    _written(version.replica)
    if version.replica[-1].isdecimal():
        raise ValueError(f"the server's name {version.replica!r} ends in a digit")
    return f"{vector_text(version.context)}{version.replica}{version.counter}"


def version_of(text: str, value: Any = None) -> Version:
    """Return the version that a text names.

    Parameters
    ----------
    text : str
        Context and dot.
    value : object
        What was written; the text has not it.

    Raises
    ------
    EventError
        If the text is no name of a version.

    Examples
    --------
    >>> from ketal.clocks.texts.clock_texts import version_of
    >>> version_of("[]s2").obsoletes(version_of("[]s1"))
    False
    >>> version_of("[s:1]s2").obsoletes(version_of("[]s1"))
    True
    """
    match = _DOTTED.fullmatch(text.strip())
    if match is None or not _NAME.fullmatch(match[2]):
        raise EventError(f"clock: {_short(text)} is no dotted version vector: [a:1,b:2]s3")
    counter = _counter(match[3], match[2], 1)
    return Version(match[2], counter, vector_of(match[1]), value)


def store_text(vector: Clock) -> str:
    """Return a version vector as Voldemort prints it: `version(1:3, 2:5)`.

    Raises
    ------
    ValueError
        If the form cannot write a name.
    """
    return f"version({', '.join(_pairs(vector))})"


def store_vector(text: str) -> dict[str, int]:
    """Return the version vector that Voldemort printed, its time left out.

    Raises
    ------
    EventError
        If the text is none.
    """
    if (match := _STORE.fullmatch(text.strip())) is None:
        raise EventError(f"clock: {_short(text)} is no vector of a store: version(1:3, 2:5)")
    return _clock(_read_pairs(match[1], text))


def interval_tree_clock_of(text: str) -> IntervalTreeClock:
    """Return the interval tree clock of a literal, in normal form: what `literal` writes.

    Raises
    ------
    EventError
        If the text is none.

    Examples
    --------
    >>> from ketal.clocks.texts.clock_texts import interval_tree_clock_of
    >>> interval_tree_clock_of("((1, 0), (1, 2, 0))")
    IntervalTreeClock(identity=(1, 0), events=(1, 2, 0))
    """
    match _trees(text):
        case [identity, events]:
            return IntervalTreeClock(_identity(identity, DEPTH_MAX), _events(events))
    raise EventError(f"clock: {_short(text)} is no interval tree clock: ((1, 0), (1, 2, 0))")


def interval_tree_events_of(text: str) -> Events:
    """Return the tree of events of a literal, in normal form: `(1, 2, 0)`, or `3`.

    Raises
    ------
    EventError
        If the text is none.
    """
    return _events(_trees(text))


def _trees(text: str) -> Any:
    """Return a literal as lists: written with brackets it would be JSON."""
    if _TREES.fullmatch(text):
        try:
            return msgspec.json.decode(text.translate(str.maketrans("()", "[]")))
        except (msgspec.DecodeError, RecursionError):
            pass
    raise EventError(f"clock: {_short(text)} is no literal of trees: (1, 2, (0, 1, 0))")


def _events(tree: Any) -> Events:
    return IntervalTreeClocks().read(tree, "").events


def _identity(tree: Any, depth: int) -> Identity:
    match tree:
        case 0 | 1:
            return int(tree)
        case [left, right] if depth:
            halves = (_identity(left, depth - 1), 0), (0, _identity(right, depth - 1))
            # Their sum is in normal form.
            return join(*(IntervalTreeClock(half, 0) for half in halves)).identity
    raise EventError(f"clock: {_short(tree)} is no identity of 0, 1 and pairs of these")


def _pairs(vector: Clock) -> list[str]:
    return [f"{_written(name)}:{counter}" for name, counter in sorted(vector.items())]


def _written(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name {name!r} is empty or has a character of the form: , : [ ] ( )")
    return name


def _read_pairs(inner: str, text: str) -> Iterable[tuple[str, int]]:
    for part in inner.split(",") if inner.strip() else ():
        name, _, counter = part.strip().partition(":")
        if not (_NAME.fullmatch(name) and _COUNTER.fullmatch(counter)):
            raise EventError(f"clock: {_short(part)} in {_short(text)} is no name:counter")
        yield name, _counter(counter, name)


def _clock(entries: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the clock of entries, each of its own name."""
    clock: dict[str, int] = {}
    for name, counter in entries:
        if name in clock:
            raise EventError(f"clock: {_short(name)} has two entries")
        clock[name] = counter
    return {name: counter for name, counter in clock.items() if counter}


def _counter(digits: str, name: str, least: int = 0) -> int:
    return _count(int(digits), name, least)


def _count(value: Any, name: str, least: int = 0) -> int:
    return counter_of(value, f"the entry of {_short(name)}", least)


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
