"""Makes the logs of this example: small runs of a replicated stack, with valid clocks.

Each function plays one run by hand. The one rule: clocks are never written by hand. A node
counts its own events, and takes over what a message carries when the message is delivered.
Running this file writes every log beside it; the logs are committed, and a test holds them
equal to what this file makes.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """What travels: what it is about, and the clock of its sending."""

    about: str
    clock: dict[str, int]


class Network:
    """Nodes, some on from the beginning, that deliver messages; each event is a line of the log."""

    def __init__(self, *on: str) -> None:
        self.lines: list[Line] = []
        self.clocks: dict[str, dict[str, int]] = {}
        self.on: list[str] = []
        for node in on:
            self.turn_on(node)

    def event(self, node: str, type: str, **data: Any) -> Message:
        """Log an event of a node; return the message that tells others of it."""
        clock = self.clocks.setdefault(node, {})
        clock[node] = clock.get(node, 0) + 1
        line: Line = {"node": node, "type": type, "clock": dict(sorted(clock.items()))}
        if data:
            line["data"] = data
        self.lines.append(line)
        return Message(f"{type.rpartition('.')[2]} of {node}", dict(clock))

    def deliver(self, message: Message, *nodes: str) -> None:
        """Deliver a message to nodes, one after the other."""
        for node in nodes:
            clock = self.clocks.setdefault(node, {})
            for other, count in message.clock.items():
                clock[other] = max(clock.get(other, 0), count)
            self.event(node, "Network.deliver", about=message.about)

    # --- the stack ---

    def turn_on(self, node: str) -> None:
        """Turn a node on: it tells those that are on, and each of them bids it welcome."""
        joining = self.event(node, "ReplicatedStack.on")
        for other in self.on:
            self.deliver(joining, other)
            self.deliver(self.event(other, "Membership.welcome"), node)
        self.on.append(node)

    def turn_off(self, node: str) -> None:
        """Turn a node off and tell the others; from now on nothing is sent to it."""
        leaving = self.event(node, "ReplicatedStack.off")
        self.on.remove(node)
        self.deliver(leaving, *self.on)

    def push(self, node: str, value: int) -> None:
        """Push at a node, and deliver it to the others that are on."""
        self.deliver(self.begin_push(node, value), *self.others(node))

    def pop(self, node: str) -> None:
        """Pop at a node, and deliver it to the others that are on."""
        self.deliver(self.event(node, "ReplicatedStack.pop"), *self.others(node))

    def begin_push(self, node: str, value: int) -> Message:
        """Push at a node; return the message, which is on its way."""
        return self.event(node, "ReplicatedStack.push", value=value)

    def others(self, node: str) -> list[str]:
        """Return the nodes that are on, without one."""
        return [other for other in self.on if other != node]


def correct() -> list[Line]:
    """Turn three nodes on and off at different times; nobody is sent anything while off."""
    net = Network("n1", "n2", "n3")
    net.push("n1", 1)
    net.push("n2", 2)
    net.pop("n3")
    net.turn_off("n3")
    net.turn_on("n3")
    net.push("n3", 3)
    net.pop("n1")
    net.turn_off("n3")
    net.push("n2", 4)
    net.pop("n1")
    net.turn_off("n2")
    net.push("n1", 5)
    net.turn_off("n1")
    return net.lines


def correct_shuffled() -> list[Line]:
    """Collect the lines of the correct run in another order."""
    lines = correct()
    random.Random(12).shuffle(lines)
    return lines


def wrong_push() -> list[Line]:
    """Let a push reach n3 before n3 turns on, as in the paper's Fig. 1."""
    net = Network("n1", "n2")
    push = net.begin_push("n1", 7)
    net.deliver(push, "n2", "n3")
    net.turn_on("n3")
    net.pop("n2")
    for node in ("n3", "n2", "n1"):
        net.turn_off(node)
    return net.lines


def wrong_pop() -> list[Line]:
    """Turn n2 off, and then let it pop."""
    net = Network("n1", "n2")
    net.push("n1", 7)
    net.turn_off("n2")
    net.pop("n2")
    net.turn_off("n1")
    return net.lines


def wrong_pop_overtaken() -> list[Line]:
    """Do the same, but let the pop's line overtake that of the Off."""
    lines = wrong_pop()
    off, pop = [
        number
        for number, line in enumerate(lines)
        if line["node"] == "n2" and line["type"] in ("ReplicatedStack.off", "ReplicatedStack.pop")
    ]
    lines.insert(off, lines.pop(pop))
    return lines


def stale_push() -> list[Line]:
    """Deliver a push that was made before n3 turned on after n3 turned on."""
    net = Network("n1", "n2")
    push = net.begin_push("n1", 7)
    net.deliver(push, "n2")
    net.turn_on("n3")
    net.deliver(push, "n3")
    for node in ("n3", "n2", "n1"):
        net.turn_off(node)
    return net.lines


def concurrent_pushes() -> list[Line]:
    """Let n1 and n2 push at the same time, which the protocol does not forbid."""
    net = Network("n1", "n2")
    one, two = net.begin_push("n1", 1), net.begin_push("n2", 2)
    net.deliver(one, "n2")
    net.deliver(two, "n1")
    net.turn_off("n2")
    net.turn_off("n1")
    return net.lines


def lost_push() -> list[Line]:
    """Turn n2 off while a push is on its way to it."""
    net = Network("n1", "n2")
    net.begin_push("n1", 7)
    net.turn_off("n2")
    net.turn_off("n1")
    return net.lines


def fig01() -> list[Line]:
    """Play the paper's Fig. 1: A turns the stack on, B pushes, and C hears of the push first.

    The lines stand in the order in which they reached C.
    """
    net = Network()
    on = net.event("A", "Stack.on")
    net.deliver(on, "B")
    push = net.event("B", "Stack.push", value=1)
    net.deliver(push, "A", "C")
    net.deliver(on, "C")
    by_dot = {(line["node"], line["clock"][line["node"]]): line for line in net.lines}
    first = [by_dot["B", 2], by_dot["C", 1], by_dot["A", 1]]
    return first + [line for line in net.lines if line not in first]


def fig05() -> list[Line]:
    """Play the paper's Fig. 5: a, d, b, c, and an `a` that does not know of the c."""
    net = Network()
    a = net.event("A", "a")
    net.deliver(a, "B", "C")
    d = net.event("A", "d")
    net.deliver(d, "B", "C")
    b = net.event("B", "b")
    net.deliver(b, "A", "C")
    c = net.event("C", "c")
    again = net.event("A", "a")
    net.deliver(c, "B", "A")
    net.deliver(again, "B", "C")
    return net.lines


LOGS = (
    correct,
    correct_shuffled,
    wrong_push,
    wrong_pop,
    wrong_pop_overtaken,
    stale_push,
    concurrent_pushes,
    lost_push,
    fig01,
    fig05,
)


def main() -> None:
    """Write every log beside this file."""
    for make in LOGS:
        text = "".join(json.dumps(line) + "\n" for line in make())
        (Path(__file__).parent / f"{make.__name__}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
