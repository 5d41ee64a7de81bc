"""The check of `[source] keyed_by` on Spark, by sampling.

If messages are keyed by an attribute of the partition key, the group of a message is the hash of
its key, and its value is not decoded for that. A scope whose messages have several keys would be in
several groups, and no group could notice. So some messages are sampled: the group that the value is
hashed to gets a copy of the message with the number of the group of its key (`rows`), and records
both. Two events of one value whose keys have different groups are an error; two keys that have the
same group do no harm.

To decode the value of each message would cost a third of Spark's throughput, and one more row for
each message. So only the first `SAMPLED_FIRST` messages of each partition are sampled, and later
one in `SAMPLED_EACH`: topics with another key are detected at once, a single wrong scope after a
while.

The one rule: only an event whose value was seen with another group ends the job. Values are equal
if patterns treat them as equal.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from ketal.errors import SettingError
from ketal.model.values import Key, keyed

SAMPLED_FIRST, SAMPLED_EACH = 10_000, 32
"""How many messages of each partition are sampled at first; one in how many is sampled later."""
SEPARATOR = ":"
"""The separator between the group of the key and the message, in the row of a sample."""


class KeyGroupCheck:
    """Checks that all keys of a value have the same group.

    Beyond `values_max` values the oldest is evicted.
    """

    def __init__(
        self, name: str, values_max: int, held: Iterable[tuple[str, str, int, str]] = ()
    ) -> None:
        self._name = name
        self._max = values_max
        self._groups: OrderedDict[Key, tuple[int, str]] = OrderedDict(
            ((kind, json.loads(value)), (group, place)) for kind, value, group, place in held
        )

    def check(self, value: Any, group: int, place: str) -> None:
        """Check the value of an event, and record the group of the key of its message.

        Raises a SettingError if the key of another message with that value has another group.
        """
        key = keyed(value)
        if key is None:
            return
        first = self._groups.setdefault(key, (group, place))
        if first[0] != group:
            raise SettingError(
                f"{place}: {self._name} = {value!r} has another key than at {first[1]}, so its "
                f"scope is in two key groups: the topics are not keyed by {self._name}; use it as "
                "the key of every message, or remove [source] keyed_by, so that the value is "
                "hashed instead of the key"
            )
        if len(self._groups) > self._max:
            self._groups.popitem(last=False)

    def state(self) -> list[tuple[str, str, int, str]]:
        """Return the values and their groups as plain data; values are JSON texts of any length."""
        return [
            (kind, json.dumps(value), group, place)
            for (kind, value), (group, place) in self._groups.items()
        ]
