"""Dots: the identities of events (node, counter).

The one rule: two events of an execution have two dots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ketal.clocks import vector
from ketal.errors import EventError, SettingError, wrong_type

_DIGITS_MAX = len(str(vector.COUNTER_MAX))


class Dot(NamedTuple):
    """The identity of an event: the node where it happened and its counter there.

    Written `node@counter`.

    Examples
    --------
    >>> import ketal
    >>> dot = ketal.Dot("n3", 7)
    >>> str(dot), dot.node, dot.counter
    ('n3@7', 'n3', 7)
    """

    node: str
    counter: int

    def __str__(self) -> str:
        return f"{self.node}@{self.counter}"

    @classmethod
    def parse(cls, text: str) -> Dot:
        """Return the dot written as `node@counter`, split at the last `@`.

        Raises
        ------
        EventError
            If `text` is not a dot.
        TypeError
            If `text` is not a string.

        Examples
        --------
        >>> import ketal
        >>> ketal.Dot.parse("n3@7")
        Dot(node='n3', counter=7)
        >>> ketal.Dot.parse("user@example.org@7").node
        'user@example.org'
        """
        if not isinstance(text, str):
            raise wrong_type("a dot", "a ketal.Dot or a str, for example n3@7", text)
        node, at, counter = text.rpartition("@")
        written = at and counter.isascii() and counter.isdigit() and len(counter) <= _DIGITS_MAX
        number = int(counter) if written else 0
        if number < 1:
            raise EventError(f"{text[:60]!r} is not a dot; write node@counter, for example n3@7")
        return cls(node, number)


def given_dot(dot: Dot | str) -> Dot:
    """Return a dot that a user gave as such or as text, `node@counter`.

    A SettingError if the text is not a dot; a TypeError if it is neither.
    """
    try:
        return dot if isinstance(dot, Dot) else Dot.parse(dot)
    except EventError as error:
        raise SettingError(error.reason) from None


dot_of: Callable[[tuple[str, int]], Dot] = partial(tuple.__new__, Dot)
"""Make the dot of a (node, counter) pair: in C, where `Dot` has an interpreted constructor."""
