"""The watch over what `[source] keyed_by` promises, on Spark (DESIGN 7).

Where messages are keyed by what a pattern is partitioned by, a message's group is the hash of its
key, and its value is not read for it. A scope whose messages have several keys would then be in
several groups, and none of them could see it. So of some messages the value is read all the same:
the group that it would have had without `keyed_by` gets a copy of the message that says to which
group the key led (`rows`), and remembers it. Two events of one value that were led to different
groups are an error; two keys that lead to one group do no harm.

Reading each value would cost a third of what Spark can do, and a row more for each. Read are the
first `READ_FIRST` messages of each partition and one of `READ_EACH` later on: what is keyed by
something else is found at once, and one scope that goes wrong after a while.

The one rule: no message that went where it belongs ends the job. What is equal is what patterns
call equal, of what is an event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ketal.errors import SettingError
from ketal.model.values import Key, keyed

READ_FIRST, READ_EACH = 10_000, 32
"""So many messages of each partition are looked at, and then one of so many."""
BETWEEN = ":"
"""Stands between the group that a key led to and the message, in a row of the watch."""


class Places:
    """Remembers to which group the keys of values led.

    Parameters
    ----------
    name : str
        The attribute whose values they are.
    values_max : int
        So many values are remembered, the latest ones.
    held : iterable of (str, str, int, str)
        What `state` returned.
    """

    def __init__(
        self, name: str, values_max: int, held: Iterable[tuple[str, str, int, str]] = ()
    ) -> None:
        self._name = name
        self._max = values_max
        self._groups: dict[Key, tuple[int, str]] = {
            (kind, json.loads(value)): (group, place) for kind, value, group, place in held
        }

    def saw(self, value: Any, group: int, place: str) -> None:
        """Take the value of an event, and the group that its message's key led to.

        Raises
        ------
        SettingError
            If the key of another message with that value led to another group.
        """
        key = keyed(value)
        if key is None:
            return
        first = self._groups.setdefault(key, (group, place))
        if first[0] != group:
            raise SettingError(
                f"{place}: {self._name} = {value!r} has another key than at {first[1]}, so that "
                f"its scope is in two key groups: the topics are not keyed by {self._name}; have "
                "the producers key them so, or leave out [source] keyed_by, and the value is "
                "hashed instead of the key"
            )
        if len(self._groups) > self._max:
            del self._groups[next(iter(self._groups))]

    def state(self) -> list[tuple[str, str, int, str]]:
        """Return what is remembered; numbers as text, for they may be of any length."""
        return [
            (kind, json.dumps(value), group, place)
            for (kind, value), (group, place) in self._groups.items()
        ]
