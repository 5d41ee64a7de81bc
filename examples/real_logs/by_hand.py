"""The answers of this example, found without ketal.

Plain reading and plain loops: events are tuples, happened-before is the comparison of two whole
clocks. The one rule: nothing of ketal is imported, so that the two can disagree. Run it with the
folder of the logs: `python examples/real_logs/by_hand.py ../shared/data`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

Clock = dict[str, int]


class Seen(NamedTuple):
    """An event as the log has it."""

    node: str
    text: str
    clock: Clock
    data: dict[str, Any]

    @property
    def dot(self) -> str:
        """The event's name."""
        return f"{self.node}@{self.clock[self.node]}"


def before(a: Seen, b: Seen) -> bool:
    """Return whether a happened before b: its clock is less or equal everywhere, and differs."""
    known = {n: c for n, c in a.clock.items() if c}
    later = {n: c for n, c in b.clock.items() if c}
    return known != later and all(later.get(n, 0) >= c for n, c in known.items())


def two_lines(path: Path) -> list[Seen]:
    """Read a log whose events are a line of text and a line with node and clock."""
    found = re.findall(r"^(.*)\n(\S+) (\{.*\}) *$", path.read_text(encoding="utf-8"), re.M)
    return [Seen(node, text, json.loads(clock), {}) for text, node, clock in found]


def akka(path: Path) -> list[Seen]:
    """Read a log of the reliable broadcast."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.search(r"/user/(\w+)\] (\{.*?\}) (.*)", line)
        if found:
            out.append(Seen(found[1], found[3], json.loads(found[2]), {}))
    return out


def trace(path: Path) -> list[Seen]:
    """Read the trace of the token ring."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        packet = dict(record["pkt"])
        out.append(Seen(str(record["node"]), record["event"], packet.pop("vc"), packet))
    return out


def barrier(log: list[Seen]) -> dict[str, int]:
    """Count the acknowledgements before each start, and those that a start did not wait for."""
    pairs = [
        (ack, go)
        for ack in log
        for go in log
        if ack.text == "Ack query plan" and go.text == "Start received"
    ]
    led = sum(before(ack, go) for ack, go in pairs)
    return {"Barrier": led, "StartedTooEarly": len(pairs) - led}


def exchange(log: list[Seen]) -> dict[str, int]:
    """Count, for each pair of nodes, the sends that a receive follows."""
    sends = [e for e in log if "shuffle producer, writing tuple bag" in e.text]
    receives = [e for e in log if e.text.startswith("TupleBag received")]
    followed: Counter[str] = Counter()
    for send in sends:
        to = send.text.rpartition(":")[2]
        sign = f"TupleBag received from localhost:{send.node} "
        if any(r.node == to and r.text.startswith(sign) and before(send, r) for r in receives):
            followed[f"{send.node} to {to}"] += 1
    return dict(sorted(followed.items()))


def broadcast(log: list[Seen]) -> dict[str, int]:
    """Count deliveries after and without their broadcast, and pairs delivered in two orders."""

    def number(event: Seen) -> str:
        return event.text.partition("DataMessage(")[2].partition(",")[0]

    starts = {number(e): e for e in log if e.text.startswith("Initiating RBBroadcast")}
    deliveries = [e for e in log if e.text.startswith("RBDeliver")]
    orders: dict[str, list[str]] = {}
    for event in sorted(deliveries, key=lambda e: e.clock[e.node]):
        orders.setdefault(event.node, []).append(number(event))
    disagreement = 0
    for one, other in combinations(orders.values(), 2):
        for a, b in combinations(set(one) & set(other), 2):
            disagreement += (one.index(a) < one.index(b)) != (other.index(a) < other.index(b))
    after = sum(before(starts[number(e)], e) for e in deliveries)
    return {
        "Delivered": after,
        "Unasked": len(deliveries) - after,
        "Disagreement": disagreement,
    }


def stale_pages(log: list[Seen]) -> list[str]:
    """Find pages of westDC served after a status was written in eastDC, without a sync between."""
    west = [e for e in log if e.node == "westDC"]
    pages = [e for e in west if e.text.partition("INFO ")[2].startswith("Sending page")]
    syncs = [e for e in west if "Received sync request" in e.text]
    return [
        f"{status.dot} {page.dot}"
        for status in log
        if status.node == "eastDC" and "INFO New status=" in status.text
        for page in pages
        if before(status, page)
        and not any(before(status, sync) and before(sync, page) for sync in syncs)
    ]


def left_open(log: list[Seen]) -> list[str]:
    """Find the ports of the connections that were never closed."""
    opened, closed = [], set()
    for event in log:
        port = re.search(r"(?:,port=|Client /[\d.]+:)(\d+)", event.text)
        if port and re.search("Protocol negotiated|connected successfully", event.text):
            opened.append(port[1])
        elif port and re.search(r"Closing remote connection|disconnected\.", event.text):
            closed.add(port[1])
    return sorted(set(opened) - closed)


def token_ring(log: list[Seen]) -> dict[str, int]:
    """Count announcements that arrive, work after them, and nodes that wake by themselves."""
    kind = {e.dot: e.data.get("msg", {}).get("type") for e in log}
    out = [e for e in log if e.text == ">" and kind[e.dot] == "trm"]
    arrived = [e for e in log if e.text == "<" and kind[e.dot] == "trm"]
    work = [e for e in log if e.text == "d" or kind[e.dot] == "pl"]
    woken = 0
    for node in {e.node for e in log}:
        own = sorted((e for e in log if e.node == node), key=lambda e: e.clock[node])
        asleep = 0
        for event in own:
            if event.text == "d":
                asleep += 1
            elif event.text == "<" and kind[event.dot] == "pl":
                asleep = 0
            elif event.text == ">" and kind[event.dot] == "pl":
                woken += asleep
    return {
        "Announced": sum(
            before(a, b) and (a.data["snd"], a.data["rcv"]) == (b.data["snd"], b.data["rcv"])
            for a in out
            for b in arrived
        ),
        "WorkAfterTermination": sum(not before(e, a) for a in out for e in work),
        "Sleepless": woken,
    }


def answers(data: Path) -> dict[str, Any]:
    """Return every answer by the name of its pattern file."""
    shiviz = data / "shiviz"
    return {
        "barrier": barrier(two_lines(shiviz / "simpledb.log")),
        "exchange": exchange(two_lines(shiviz / "simpledb.log")),
        "broadcast": broadcast(akka(shiviz / "reliable-broadcast.log")),
        "stale_page": stale_pages(two_lines(shiviz / "facebook.log")),
        "connections": left_open(two_lines(shiviz / "voldemort-simple-threadnames.log")),
        "token": token_ring(trace(data / "tlaplus" / "VectorClocksTests.ndjson")),
    }


if __name__ == "__main__":
    for name, answer in answers(Path(sys.argv[1])).items():
        print(f"{name}: {answer}")
