"""Injects faults into a valid log, each with the line where the auditor must report it.

A log is a list of plain records, one per line; an injection changes the record of one event, and
returns the line of the fault, or None if this event cannot have the fault. Changed records, their
neighbours along the node and their counterparts are not changed again (`Rig.busy`), so that several
faults in one log have several causes.

Some injections give the same log as others would. docs/audit.md and `tests/auditing/test_causes.py`
define what is reported then; here such places are skipped: the last event of a node, whose own
entry leaves no hole; in a shuffled file, events of a node between which it learned nothing, as only
their own entries distinguish them; an entry that goes backwards if the entry before it may be too
high instead.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ketal.model.events.event import Event

Line = dict[str, Any]
Clock = dict[str, int]
MATCH = "id=message,send=sent:yes,receive=got:yes"
"""The option that matches the messages of a rig that has them."""


class Rig:
    """A valid log into which faults are injected.

    Parameters
    ----------
    events : list of Event
        The log, in the order of its file.
    rng : random.Random
        The source of random choices.
    messages : bool
        Whether the records name the messages that the clocks imply.
    """

    def __init__(self, events: list[Event], rng: random.Random, *, messages: bool = False) -> None:
        self.rng = rng
        self.records: list[Line] = [
            {"node": e.node, "type": e.type, "clock": dict(e.clock), "data": {"at": i, **e.data}}
            for i, e in enumerate(events)
        ]
        self.clean = [dict(e.clock) for e in events]
        self.at = {(e.node, e.counter): i for i, e in enumerate(events)}
        self.last: Clock = {}
        for e in events:
            self.last[e.node] = max(e.counter, self.last.get(e.node, 0))
        self.shuffled = any(
            self.at[node, counter] < self.at.get((node, counter - 1), -1)
            for node, counter in self.at
        )
        self.sender: dict[int, int] = self._named_messages() if messages else {}
        self.extra: list[tuple[int, Line]] = []
        self.gone: set[int] = set()
        self.busy: set[int] = set()
        self.holed: set[str] = set()
        self.blank: set[str] = set()
        self.ghosts = 0

    def _named_messages(self) -> dict[int, int]:
        """Name a message for each event that learned a clock entry; return receive → send."""
        senders: dict[int, int] = {}
        used: set[int] = set()
        for index in range(len(self.records)):
            news = [self.at[dot] for dot in self.news(index)]
            if not news:
                continue
            send = max(news, key=lambda i: (sum(self.clean[i].values()), i))
            # One attribute names one message, so an event sends or receives a single message.
            if used.isdisjoint((index, send)):
                used |= {index, send}
                senders[index] = send
                self.records[index]["data"] |= {"message": f"m{index}", "got": "yes"}
                self.records[send]["data"] |= {"message": f"m{index}", "sent": "yes"}
        return senders

    # --- the neighbourhood of an event ------------------------------------------------

    def dot(self, index: int) -> tuple[str, int]:
        node = self.records[index]["node"]
        return node, self.clean[index][node]

    def before(self, index: int) -> Clock:
        node, counter = self.dot(index)
        return self.clean[self.at[node, counter - 1]] if counter > 1 else {}

    def news(self, index: int) -> list[tuple[str, int]]:
        node, before = self.dot(index)[0], self.before(index)
        return [d for d in self.clean[index].items() if d[0] != node and d[1] > before.get(d[0], 0)]

    def near(self, node: str, counter: int, reach: int = 2) -> set[int]:
        first = last = counter
        if self.shuffled:
            while self._alike(node, first, first - 1):
                first -= 1
            while self._alike(node, last, last + 1):
                last += 1
        around = range(first - reach, last + reach + 1)
        return {self.at[node, c] for c in around if (node, c) in self.at}

    def _alike(self, node: str, counter: int, other: int) -> bool:
        """Return whether two events of a node know the same of other nodes."""
        if (node, other) not in self.at:
            return False
        one, two = self.clean[self.at[node, counter]], self.clean[self.at[node, other]]
        return one | {node: 0} == two | {node: 0}

    def around(self, index: int) -> set[int]:
        """Return the events whose clocks are evidence about an event."""
        learned = {self.at[dot] for dot in self.news(index)}
        return learned | self.near(*self.dot(index))

    def free(self, index: int) -> bool:
        return not self.busy & self.around(index)

    # --- the file -----------------------------------------------------------------------

    def expected(self, lines: dict[int, str]) -> list[tuple[int, str]]:
        """Return (line, code) of each fault, with its line in the written log."""
        numbers = {index: number for number, index in enumerate(self.order(), 1)}
        return sorted((numbers[index], code) for index, code in lines.items())

    def order(self) -> list[int]:
        """Return the indices of the records in file order; extra ones as -1 - their place."""
        out: list[int] = []
        after: dict[int, list[int]] = {}
        for place, (index, _) in enumerate(self.extra):
            after.setdefault(index, []).append(-1 - place)
        for index in range(len(self.records)):
            if index not in self.gone:
                out.append(index)
            out += after.get(index, [])
        return out

    def write(self, path: Path) -> None:
        rows = [
            self.records[index] if index >= 0 else self.extra[-1 - index][1]
            for index in self.order()
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    # --- the faults: each returns the index of the record that must be reported --------

    def own_missing(self, index: int) -> int | None:
        del self.records[index]["clock"][self.dot(index)[0]]
        return index

    def own_zero(self, index: int) -> int | None:
        self.records[index]["clock"][self.dot(index)[0]] = 0
        return index

    def no_clock(self, index: int) -> int | None:
        if self.shuffled and self.dot(index)[0] in self.holed:
            # It would fit any hole of its node.
            return None
        del self.records[index]["clock"]
        self.blank.add(self.dot(index)[0])
        return index

    def no_counter(self, index: int) -> int | None:
        names = sorted(self.clean[index].keys() - {self.dot(index)[0]})
        if not names:
            return None
        self.records[index]["clock"][self.rng.choice(names)] = -1
        return index

    def not_increasing(self, index: int) -> int | None:
        node, counter = self.dot(index)
        if counter < 2 or counter == self.last[node] or self._alone(index):
            return None
        self.records[index]["clock"][node] = counter - 1
        return index

    def too_large(self, index: int) -> int | None:
        node, counter = self.dot(index)
        if counter == self.last[node] or self._alone(index):
            return None
        self.records[index]["clock"][node] = self.last[node] + self.rng.randint(2, 9)
        return index

    def too_low(self, index: int) -> int | None:
        """Lower the own entry, to any value."""
        node, counter = self.dot(index)
        if counter < 2:
            return None
        self.records[index]["clock"][node] = self.rng.randint(1, counter - 1)
        return index

    def far_too_large(self, index: int) -> int | None:
        """Raise the own entry so far that two such events do not look like ones after a loss."""
        node, _ = self.dot(index)
        self.records[index]["clock"][node] = self.last[node] + self.rng.randint(2, 10**6)
        return index

    def _alone(self, index: int) -> bool:
        """Return whether, in a shuffled file, either of two events may have the wrong entry."""
        node, counter = self.dot(index)
        return self.shuffled and (
            self._alike(node, counter, counter - 1) or self._alike(node, counter, counter + 1)
        )

    def hole(self, index: int) -> int | None:
        node, counter = self.dot(index)
        if counter == self.last[node] or (self.shuffled and node in self.blank):
            return None
        self.gone.add(index)
        self.holed.add(node)
        return self.at[node, counter + 1]

    def other_content(self, index: int) -> int | None:
        copy = json.loads(json.dumps(self.records[index]))
        copy["type"] += " (again)"
        self.extra.append((index, copy))
        return -len(self.extra)

    def unknown_event(self, index: int) -> int | None:
        node, _ = self.dot(index)
        others = [n for n in sorted(self.last.keys() - {node}) if self._ends_clean(n)]
        if not others:
            return None
        other = self.rng.choice(others)
        self.records[index]["clock"][other] = self.last[other] + self.rng.randint(1, 9)
        # A repeated last event would look like the event that is referred to.
        self.busy |= self.near(other, self.last[other])
        return index

    def _ends_clean(self, node: str) -> bool:
        return not self.busy & self.near(node, self.last[node])

    def unknown_node(self, index: int) -> int | None:
        self.ghosts += 1
        self.records[index]["clock"][f"ghost{self.ghosts}"] = self.rng.randint(1, 9)
        return index

    def not_transitive(self, index: int) -> int | None:
        """Lower an entry that came with a message to what the node knew before."""
        before, news = self.before(index), self.news(index)
        for name, _ in sorted(news):
            taught = [
                d for d in news
                if d[0] != name and self.clean[self.at[d]].get(name, 0) > before.get(name, 0)
            ]  # fmt: skip
            if before and taught and not self._is_sender(index, name):
                self._set(index, name, before.get(name, 0))
                return index
        return None

    def backwards(self, index: int) -> int | None:
        node, counter = self.dot(index)
        if counter == self.last[node] or counter < 3:
            return None
        before, earlier = self.before(index), self.clean[self.at[node, counter - 2]]
        names = [
            name
            for name in sorted(before.keys() - {node})
            # Two events that agree on both sides distinguish a fall from a rise before it.
            if earlier.get(name, 0) == before[name] and not self._is_sender(index, name)
        ]
        if not names:
            return None
        name = self.rng.choice(names)
        self._set(index, name, before[name] - 1)
        return index

    def send_unknown(self, index: int) -> int | None:
        if index not in self.sender:
            return None
        name = self.dot(self.sender[index])[0]
        if self.sender[index] in self.gone:
            return None
        self._set(index, name, self.before(index).get(name, 0))
        return index

    def _is_sender(self, index: int, name: str) -> bool:
        """Return whether lowering an entry makes the event not know the send of a message."""
        return index in self.sender and self.dot(self.sender[index])[0] == name

    def _set(self, index: int, name: str, value: int) -> None:
        clock = self.records[index]["clock"]
        clock[name] = value
        if not value:
            del clock[name]


FAULTS: dict[str, tuple[str, Callable[[Rig, int], int | None]]] = {
    "own entry missing": ("A001", Rig.own_missing),
    "own entry zero": ("A001", Rig.own_zero),
    "no clock": ("A002", Rig.no_clock),
    "entry no counter": ("A002", Rig.no_counter),
    "own entry not increasing": ("A003", Rig.not_increasing),
    "own entry too large": ("A003", Rig.too_large),
    "hole": ("A004", Rig.hole),
    "same dot, other content": ("A005", Rig.other_content),
    "unknown event": ("A006", Rig.unknown_event),
    "unknown node": ("A007", Rig.unknown_node),
    "not transitive": ("A008", Rig.not_transitive),
    "send unknown": ("A009", Rig.send_unknown),
    "backwards": ("A010", Rig.backwards),
}
"""Name → (code, injection); a restart, A011, is injected by `with_restart`."""


CROWDED: dict[str, tuple[str, Callable[[Rig, int], int | None]]] = {
    "missing": ("A001", Rig.own_missing),
    "too large": ("A003", Rig.far_too_large),
    "too low": ("A003", Rig.too_low),
}
"""Faults of own entries that may be adjacent."""


def inject_crowded(rig: Rig, kinds: Sequence[str], count: int) -> dict[int, str]:
    """Inject wrong own entries side by side; return the lines and codes to expect.

    Parameters
    ----------
    rig : Rig
        The log.
    kinds : sequence of str
        The keys of `CROWDED` from which each fault is chosen.
    count : int
        How many at most; the last event of a node is not changed.
    """
    places = [i for i in range(len(rig.records)) if rig.dot(i)[1] < rig.last[rig.dot(i)[0]]]
    expected = {}
    for index in rig.rng.sample(places, min(count, len(places))):
        code, injection = CROWDED[rig.rng.choice(kinds)]
        if injection(rig, index) is not None:
            expected[index] = code
    return expected


def inject(rig: Rig, name: str, count: int) -> dict[int, str]:
    """Inject up to `count` faults of a class; return the expected lines and codes."""
    code, injection = FAULTS[name]
    expected: dict[int, str] = {}
    indices = list(range(len(rig.records)))
    rig.rng.shuffle(indices)
    for index in indices:
        if len(expected) >= count:
            break
        if not rig.free(index):
            continue
        named = injection(rig, index)
        if named is None:
            continue
        rig.busy |= rig.around(index)
        expected[named] = code
    return expected


def with_restart(events: list[Event], node: str, cut: int) -> tuple[list[Event], int]:
    """Restart a node, so that it counts from 1 again without its clock, at its event `cut`.

    All clocks are as they would have been: events after the restart do not know what
    the events before it knew. A clock has room for one run of the node: the later one.

    Returns
    -------
    tuple of list of Event and int
        The log, and the line of the first event of the second run.
    """
    clean = {(e.node, e.counter): e for e in events}
    again = f"{node}#2"
    full: dict[tuple[str, int], Clock] = {}
    for event in sorted(events, key=lambda e: sum(e.clock.values())):
        before = clean.get((event.node, event.counter - 1))
        starts = event.node == node and event.counter == cut
        clock = dict(full[before.dot]) if before is not None and not starts else {}
        for dot in event.clock.items():
            if dot[0] != event.node and dot[1] > (before.clock.get(dot[0], 0) if before else 0):
                for name, value in full[dot].items():
                    clock[name] = max(value, clock.get(name, 0))
        later = event.node == node and event.counter >= cut
        clock[again if later else event.node] = event.counter - (cut - 1 if later else 0)
        full[event.dot] = clock
    out, line = [], 0
    for number, event in enumerate(events, 1):
        clock = dict(full[event.dot])
        if again in clock:
            clock[node] = clock.pop(again)
        data = {"at": number, **event.data}
        out.append(Event(event.node, event.type, clock, event.time, data, event.id))
        if event.dot == (node, cut):
            line = number
    return out, line
