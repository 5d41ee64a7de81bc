"""Random `find any` patterns for executions of 60 events, as text.

Steps of `patterns.pattern_file` accept most events; these steps accept one event in four or
six, and repetitions are short, so an execution has some matches but not very many.
"""

from __future__ import annotations

import random

TYPES = ("S.a", "S.b", "S.c", "S.d", "S.e", "S.f")
EVENTS = "ABCD"
"""The events that steps use, one per type for the first types."""
_WITHIN = (2, 5, 10, 15, 20, 30, 40)


def long_pattern(rng: random.Random) -> str:
    """Return the text of a random pattern P."""
    return _Maker(rng).text()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.declared: list[str] = []
        self.steps: list[str] = []

    def text(self) -> str:
        rng = self.rng
        body = self._body()
        lines = [f"order {rng.choice(('CausalOrder', 'CausalOrder', 'arrival'))};"]
        if rng.random() < 0.1:
            lines.append("partition by key;")
        lines += [
            f'event {name} = type == "{kind}";' for name, kind in zip(EVENTS, TYPES, strict=False)
        ]
        lines += self.declared
        lines.append(f"find any {body};")
        if rng.random() < 0.6:
            lines.append(f"within {rng.choice(_WITHIN)} {rng.choice(('s', 's', 'events'))};")
        return "pattern P {\n    " + "\n    ".join(lines) + "\n}\n"

    def _body(self) -> str:
        rng = self.rng
        items: list[str] = []
        bound: list[str] = []
        empty = True  # so far, and then the item before
        for _ in range(rng.choice((2, 3, 3, 4, 4, 5))):
            absent = not empty and rng.random() < 0.12
            if absent:
                items.append(f"not {self._absent(bound)}")
            item, binds, empty = self._item(bound)
            if empty and (absent or not items):
                item, binds = self._step(bound)
                empty = False
            items.append(item)
            bound += binds
        return " ".join(items)

    def _item(self, bound: list[str]) -> tuple[str, list[str], bool]:
        """Return a part of a body, the steps it binds, and whether it may be empty."""
        rng = self.rng
        one, binds = self._step(bound)
        shape = rng.choice(("step",) * 8 + ("or", "or", "group", "both", "some"))
        if shape == "step":
            return one, binds, False
        if shape == "or":
            return f"({one} | {self._step(bound)[0]})", [], False
        if shape == "both":
            other, more = self._step(bound)
            return f"{{{one} & {other}}}", [*binds, *more], False
        if shape == "group":
            other, more = self._step([*bound, *binds])
            count = rng.choice(("{1,2}", "{2}", "?", ""))
            return f"({one} {other}){count}", [] if count == "?" else [*binds, *more], count == "?"
        count = rng.choice(("+", "{1,2}", "{2}", "{2,3}", "*", "?"))
        return f"{one}{count}", [] if count in "*?" else binds, count in "*?"

    def _step(self, bound: list[str]) -> tuple[str, list[str]]:
        """Return a step (an event, or a new or earlier declared step), and what it binds."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.2:
            name = rng.choice(EVENTS)
        elif kind < 0.3 and self.steps:
            name = rng.choice(self.steps)
            if name not in bound:  # what it refers to may not be bound here
                name = rng.choice(EVENTS)
        else:
            name = f"S{len(self.steps) + 1}"
            self.declared.append(f"{name} = {self._guard(bound)};")
            self.steps.append(name)
        return name, [name]

    def _guard(self, bound: list[str]) -> str:
        rng = self.rng
        guard = rng.choice(EVENTS)
        if rng.random() < 0.1:
            guard = f"({guard} || {rng.choice(EVENTS)})"
        if rng.random() < 0.65:
            anchors = ["", "", "", ", all"]
            anchors += [f", {name}" for name in [*bound, *self.steps[:1]]]
            relation = rng.choice(("Causal", "Conc", "Conc"))
            guard = f"{relation}({guard}{rng.choice(anchors)})"
            if rng.random() < 0.1:
                guard += f" {rng.choice(('&&', '||'))} Causal({rng.choice(EVENTS)}, all)"
        if bound and rng.random() < 0.2:
            guard += f" && {self._comparison(bound)}"
        return guard

    def _comparison(self, bound: list[str]) -> str:
        rng = self.rng
        name = rng.choice(bound)
        read = rng.choice(("x", "x", "y", "node"))
        op = rng.choice(("==", "==", "==", "!=", "<"))
        return f"{read} {op} {name}.{read}"

    def _absent(self, bound: list[str]) -> str:
        guard = self.rng.choice(EVENTS)
        if bound and self.rng.random() < 0.3:
            return f"({guard} && {self._comparison(bound)})"
        return guard
