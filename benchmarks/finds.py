"""How the cost of a `find` grows with the log: the CPU time of ten times as many events.

Run by hand: `python benchmarks/finds.py [events]`. Windows and equalities with an earlier step
bound the candidates of each event, so each ratio should be near ten; it is far higher if an event
is compared with every partial match.
"""

from __future__ import annotations

import sys
import time

import ketal
from benchmarks.executions import execution

EVENTS = 'event A = type == "A"; event B = type == "B"; event N = type == "N";'
CAUSAL = f"order CausalOrder; {EVENTS}"
PATTERNS = {
    "any, compared, 1 s": f"{CAUSAL} B1 = B && other > A.other; find any A B1; within 1 s;",
    "any, Causal all, 1 s": f"{CAUSAL} B1 = Causal(B, all); find any A B1; within 1 s;",
    "any, not, 1 s": f"{CAUSAL} find any A not N B; within 1 s;",
    "any, not compared, 1 s": f"{CAUSAL} find any A not (N && key == A.key) B; within 1 s;",
    "any, 100 events": f"{CAUSAL} find any A B; within 100 events;",
    "any at every node, 1 s": (
        f"order CausalOrder; at every node; {EVENTS} B1 = Causal(B); find any A B1; within 1 s;"
    ),
    "any, partitioned, 1 s": f"{CAUSAL} partition by key; find any A B; within 1 s;",
    "next, equality, 10 s": f"{CAUSAL} B1 = B && key == A.key; find next A B1; within 10 s;",
    "arrival next, equality": f"{EVENTS} B1 = B && key == A.key; find next A B1;",
    "arrival any, equality, 10 s": f"{EVENTS} B1 = B && key == A.key; find any A B1; within 10 s;",
}


def seconds(body: str, events: list[ketal.Event]) -> tuple[float, int]:
    """Return the CPU time to judge the events, and how many matches there are."""
    program = ketal.compile(f"pattern P {{ {body} }}")
    begin = time.process_time()
    verdicts = ketal.run(program, events, listing=False)
    for _ in verdicts:
        pass
    return time.process_time() - begin, verdicts.summary["patterns"]["P"]["matches"]


def main() -> None:
    """Print, for each pattern, the rate at the larger size and the ratio of the two."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    log = execution(many, nodes=6, types="AABBN", per_s=100)
    few = log[: many // 10]
    print(f"{'':30} {'matches':>10} {'events/s':>10} {'10x events':>12}")
    for name, body in PATTERNS.items():
        short, _ = seconds(body, few)
        long, matches = seconds(body, log)
        print(f"{name:30} {matches:10,} {many / long:10,.0f} {long / short:10.1f}x time")


if __name__ == "__main__":
    main()
