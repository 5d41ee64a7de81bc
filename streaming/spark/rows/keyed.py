"""The check of `[source] keyed_by` on Spark, by samples.

Where messages are keyed by an attribute of the partition, a message's group is the hash of its key,
and its value is not decoded for that. A scope whose messages have several keys would be in several
groups, and none of them could see it. So some messages are sampled: the group that is the hash of
the value gets a copy of the message with the group of its key (`rows`), and records it. Two events
of one value whose keys have different groups are an error; two keys of one group do no harm.

Decoding each value would take a third of Spark's throughput, and a row more for each. Sampled are
the first `READ_FIRST` messages of each partition and one in `READ_EACH` later on: topics with
another key are found at once, a single wrong scope after a while.

The one rule: only an event whose value was seen with another group ends the job. Values are equal
if patterns call them equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ketal.errors import SettingError
from ketal.model.values import Key, keyed

READ_FIRST, READ_EACH = 10_000, 32
"""So many messages of each partition are sampled, and then one in so many."""
BETWEEN = ":"
"""The separator of the key's group and the message, in a row of a sample."""


class Places:
    """Checks that the keys of each value have one group.

    Of more than `values_max` values the oldest are evicted.
    """

    def __init__(
        self, name: str, values_max: int, held: Iterable[tuple[str, str, int, str]] = ()
    ) -> None:
        self._name = name
        self._max = values_max
        self._groups: dict[Key, tuple[int, str]] = {
            (kind, json.loads(value)): (group, place) for kind, value, group, place in held
        }

    def check(self, value: Any, group: int, place: str) -> None:
        """Check the value of an event, and record the group of its message's key.

        Raises
        ------
        SettingError
            If the key of another message with that value has another group.
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
        """Return the values and their groups as plain data, numbers of any length as text."""
        return [
            (kind, json.dumps(value), group, place)
            for (kind, value), (group, place) in self._groups.items()
        ]
