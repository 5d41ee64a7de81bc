"""Faults put into a valid log, each with the line where the auditor must name it.

A log is a list of plain records, one a line; an injection takes the record of one
event, spoils it, and returns the line of the fault, or None where this event
cannot have the fault. Records that are touched, their neighbours along the node
and their counterparts are left alone afterwards (`Rig.busy`), so that several
faults in one log stay several causes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ketal.event import Event

Line = dict[str, Any]


class Rig:
    """A valid log that faults are put into."""

    def __init__(self, events: list[Event], rng: random.Random) -> None:
        self.rng = rng
        self.records: list[Line] = [
            {"node": e.node, "type": e.type, "clock": dict(e.clock), "data": dict(e.data)}
            for e in events
        ]
        self.clean = [dict(e.clock) for e in events]
        self.at = {(e.node, e.counter): i for i, e in enumerate(events)}
        self.last = {e.node: max(f.counter for f in events if f.node == e.node) for e in events}
        self.shuffled = any(
            self.at[node, counter] < self.at.get((node, counter - 1), -1)
            for node, counter in self.at
        )
        self.extra: list[tuple[int, Line]] = []
        self.gone: set[int] = set()
        self.busy: set[int] = set()
        self.ghosts = 0

    def dot(self, index: int) -> tuple[str, int]:
        node = self.records[index]["node"]
        return node, self.clean[index][node]

    def near(self, node: str, counter: int, reach: int = 2) -> set[int]:
        around = range(counter - reach, counter + reach + 1)
        return {self.at[node, c] for c in around if (node, c) in self.at}

    def around(self, index: int) -> set[int]:
        """Return the events whose clocks are evidence about this one."""
        node, counter = self.dot(index)
        before = self.clean[self.at[node, counter - 1]] if counter > 1 else {}
        learned = {
            self.at[dot]
            for dot in self.clean[index].items()
            if dot[0] != node and dot[1] != before.get(dot[0], 0)
        }
        return learned | self.near(node, counter)

    def free(self, index: int) -> bool:
        return not self.busy & self.around(index)

    def expected(self, lines: dict[int, str]) -> list[tuple[int, str]]:
        """Return (line, code) of each fault by the line it has in the written log."""
        numbers = {index: number for number, index in enumerate(self.order(), 1)}
        return sorted((numbers[index], code) for index, code in lines.items())

    def order(self) -> list[int]:
        """Return the indices of the records as written; extra ones are -1 - their place."""
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

    # --- the faults: each returns the index of the line that must be named -------------

    def own_missing(self, index: int) -> int | None:
        node, _ = self.dot(index)
        if len(self.clean[index]) < 2:
            return None
        del self.records[index]["clock"][node]
        return index

    def own_zero(self, index: int) -> int | None:
        self.records[index]["clock"][self.dot(index)[0]] = 0
        return index

    def not_increasing(self, index: int) -> int | None:
        node, counter = self.dot(index)
        # The last event of a node leaves no hole: nothing says what its entry was.
        if counter < 2 or counter == self.last[node]:
            return None
        before = self.clean[self.at[node, counter - 1]]
        if self.shuffled and all(
            self.clean[index].get(name, 0) == before.get(name, 0)
            for name in self.clean[index].keys() - {node}
        ):
            # Two events that know the same: only their order in the file tells them apart.
            return None
        self.records[index]["clock"][node] = counter - 1
        return index

    def hole(self, index: int) -> int | None:
        node, counter = self.dot(index)
        if counter == self.last[node]:
            return None
        self.gone.add(index)
        return self.at[node, counter + 1]

    def other_content(self, index: int) -> int | None:
        copy = json.loads(json.dumps(self.records[index]))
        copy["type"] += " (again)"
        self.extra.append((index, copy))
        return -len(self.extra)

    def unknown_event(self, index: int) -> int | None:
        node, _ = self.dot(index)
        others = sorted(self.last.keys() - {node})
        if not others:
            return None
        other = self.rng.choice(others)
        self.records[index]["clock"][other] = self.last[other] + self.rng.randint(1, 9)
        return index

    def unknown_node(self, index: int) -> int | None:
        self.ghosts += 1
        self.records[index]["clock"][f"ghost{self.ghosts}"] = self.rng.randint(1, 9)
        return index

    def not_transitive(self, index: int) -> int | None:
        """Forget an entry that came with a message, down to what the node knew before."""
        node, counter = self.dot(index)
        if counter < 2:
            return None
        before = self.clean[self.at[node, counter - 1]]
        clock = self.clean[index]
        for name in sorted(clock.keys() - {node}):
            if clock[name] == before.get(name, 0):
                continue
            learned = [
                m
                for m, v in clock.items()
                if m not in (node, name)
                and v > before.get(m, 0)
                and self.clean[self.at[m, v]].get(name, 0) > before.get(name, 0)
            ]
            if learned:
                self._set(index, name, before.get(name, 0))
                return index
        return None

    def backwards(self, index: int) -> int | None:
        node, counter = self.dot(index)
        if counter < 2 or counter == self.last[node]:
            return None
        before = self.clean[self.at[node, counter - 1]]
        names = [
            name
            for name in sorted(before.keys() - {node})
            # Two events that agree on both sides tell a fall from a rise before it.
            if counter > 2 and self.clean[self.at[node, counter - 2]].get(name, 0) == before[name]
        ]
        if not names:
            return None
        name = self.rng.choice(names)
        self._set(index, name, before[name] - 1)
        return index

    def _set(self, index: int, name: str, value: int) -> None:
        clock = self.records[index]["clock"]
        clock[name] = value
        if not value:
            del clock[name]


FAULTS: dict[str, tuple[str, Callable[[Rig, int], int | None]]] = {
    "own entry missing": ("A001", Rig.own_missing),
    "own entry zero": ("A001", Rig.own_zero),
    "own entry not increasing": ("A003", Rig.not_increasing),
    "hole": ("A004", Rig.hole),
    "same dot, other content": ("A005", Rig.other_content),
    "unknown event": ("A006", Rig.unknown_event),
    "unknown node": ("A007", Rig.unknown_node),
    "not transitive": ("A008", Rig.not_transitive),
    "backwards": ("A010", Rig.backwards),
}
"""Name → (code, injection)."""


def inject(rig: Rig, name: str, count: int) -> dict[int, str]:
    """Put up to `count` faults of a class in; return the lines and codes to expect."""
    code, spoil = FAULTS[name]
    expected: dict[int, str] = {}
    indices = list(range(len(rig.records)))
    rig.rng.shuffle(indices)
    for index in indices:
        if len(expected) >= count:
            break
        if not rig.free(index):
            continue
        named = spoil(rig, index)
        if named is None:
            continue
        rig.busy |= rig.around(index)
        expected[named] = code
    return expected
