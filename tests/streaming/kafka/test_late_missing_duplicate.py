"""Late, missing and duplicate events: every message is in one count, the same in every way.

An execution loses events, repeats others, and contains malformed messages. For patterns whose
events never wait, every way reports what `ketal.run` reports of the file. Events that wait for a
lost event are still held back at the end of a stream; there a `Monitor` is the reference.
"""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ketal
from ketal.streaming.broker.server import Broker
from tests.streaming import ways
from tests.streaming.ways import Execution, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:.*key group:UserWarning")

NODES = "abcd"
FORKS = """
pattern Forks {
    order CausalOrder; partition by key;
    event Write = type == "write";
    First = Write; Second = Conc(Write);
    find any First Second; within 20 s;
}
"""
WAITING = """
pattern Turns {
    order CausalOrder(total, nodes = ["a", "b", "c", "d"]);
    event Odd = n == 1; event Even = n == 0;
    check (Odd Even)*; on violation resume;
}
pattern Unread {
    order CausalOrder;
    event Write = type == "write"; event Read = type == "read";
    Later = Causal(Write, Write);
    find any Write not Read Later;
}
"""
ARRIVING = """
pattern Same {
    partition by key;
    event Any = exists(n); First = Any; Again = Any && n == First.n;
    find next First Again; within 20 s;
}
"""
WINDOWLESS = """
pattern Steps {
    partition by node;
    event Any = exists(n); First = Any; Next = Any && n != First.n;
    find next First Next;
}
"""
IN_VAIN = """
pattern InVain {
    order CausalOrder; partition by key;
    event Write = type == "write";
    First = Write; Second = Conc(Write) && n == 7;
    find any First Second; within 20 s;
}
"""
MALFORMED = (b"poison", b'{"node": "a", "type": "write"}', b'{"type": "ketal.none"}', b"[]")


def lines(count: int = 80, seed: int = 1) -> list[bytes]:
    """Return events of four nodes, which merge each other's clocks, a second apart."""
    chance = random.Random(seed)
    clocks = {node: {node: 0} for node in NODES}
    out = []
    for time_s in range(count):
        node = chance.choice(NODES)
        clock = clocks[node]
        if chance.random() < 0.4:
            for other, counter in clocks[chance.choice(NODES)].items():
                clock[other] = max(counter, clock.get(other, 0))
        clock[node] += 1
        kind = chance.choice(["write", "read"])
        data = {"key": chance.randrange(5), "n": chance.randrange(2)}
        event = {"node": node, "type": kind, "clock": clock, "time": time_s, "data": data}
        out.append(json.dumps(event).encode())
    return out


def damaged(whole: list[bytes], seed: int = 2) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return the events that are not lost, those of them that are repeated, and malformed lines."""
    chance = random.Random(seed)
    half = len(whole) // 2
    left = [line for at, line in enumerate(whole) if at < half or chance.random() < 0.7]
    twice = [line for line in left if chance.random() < 0.3]
    return left, twice, list(MALFORMED)


def in_all_ways(
    execution: Execution, spark: SparkSession, broker: Broker, folder: Path
) -> dict[str, Outcome]:
    topics = ways.produced(broker, [execution], f"damaged-{uuid.uuid4().hex[:8]}")
    streamed = ways.by_spark_stream([execution], spark, broker, topics, folder)
    return {
        "monitor": ways.by_monitor(execution),
        "process": ways.by_process(execution, broker, topics[execution.name], folder),
        "spark": streamed[execution.name],
        "table": ways.by_spark_batch(execution, spark, broker, topics[execution.name]),
    }


def assert_all_counted(outcome: Outcome, execution: Execution) -> None:
    """Assert that each consumed message is in exactly one count."""
    counts = dict(outcome.events)
    read = counts.pop("read")
    assert read == sum(counts.values())
    assert len(outcome.of("rejected")) == counts["rejected"]
    assert len(outcome.of("late")) == counts["late"]
    if outcome.messages is not None:
        assert outcome.messages == len(execution.messages) == read + (outcome.control or 0)


def test_missing_duplicate_and_malformed_messages_are_counted_alike_in_every_way(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    left, twice, malformed = damaged(lines())
    assert len(left) < 75
    assert len(twice) > 15
    execution = ways.shuffled(
        "damaged", ketal.compile(FORKS + WAITING), [*left, *twice, *malformed], seed=3
    )
    run = ways.by_run(execution, tmp_path)
    outcomes = in_all_ways(execution, spark, broker, tmp_path)
    measure = outcomes["monitor"]
    for outcome in (run, *outcomes.values()):
        assert_all_counted(outcome, execution)
        assert outcome.events["read"] == len(left) + len(twice) + len(malformed)
        assert outcome.events["duplicates"] == len(twice)
        assert outcome.events["rejected"] == len(malformed)
    for outcome in outcomes.values():
        assert outcome.judged == measure.judged
        assert (outcome.events, outcome.patterns) == (measure.events, measure.patterns)
    # A pattern whose events never wait gives the verdicts of `ketal.run`, despite duplicates.
    assert forks(measure) == forks(run)
    assert {one["verdict"] for one in measure.of("match", "timed_out")} == {"match", "timed_out"}
    once = ways.shuffled("once", execution.program, left, seed=4)
    assert ways.by_monitor(once).judged == measure.judged
    # At the end of a stream, unlike in a file, events that wait for a lost event are held back.
    assert measure.events["held_back"] > 0
    assert all(measure.patterns[name] != run.patterns[name] for name in ("Turns", "Unread"))
    assert measure.events["accepted"] + measure.events["held_back"] == run.events["accepted"]
    places = [sorted(one["place"] for one in outcomes[way].of("rejected"))
              for way in ("process", "spark", "table")]  # fmt: skip
    assert places[0] == places[1] == places[2]


def forks(outcome: Outcome) -> list[str]:
    return ways.ordered(one for one in outcome.verdicts if one.get("pattern") == "Forks")


def test_late_events_are_counted_once_and_offered_to_no_pattern(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """An event is late once the watermark has passed its time.

    On Spark the patterns are in two families, one of which has no window.
    """
    whole = lines()
    chance = random.Random(5)
    late = sorted(chance.sample(range(40), 9))
    contradiction = whole[60].replace(b'"n": 0', b'"n": 2').replace(b'"n": 1', b'"n": 2')
    in_time = [line for number, line in enumerate(whole[:50]) if number not in late]
    ordered = [
        *in_time,
        b'{"type": "ketal.watermark", "time": 40}',
        *(whole[number] for number in late),
        *whole[50:],
        whole[55],
        contradiction,
    ]
    program = ketal.compile(FORKS + IN_VAIN + ARRIVING + WINDOWLESS)
    execution = ways.in_one_partition("late", program, ordered)
    found = in_all_ways(execution, spark, broker, tmp_path)
    measure = found["monitor"]
    assert measure.events == {
        "read": 82, "accepted": 71, "duplicates": 1, "rejected": 1, "late": 9, "held_back": 0,
        "overflow": 0,
    }  # fmt: skip
    assert measure.patterns["Steps"]["matches"] > 5
    doubted = [one for one in measure.of("timed_out") if one.get("certain") is False]
    # A late event is missing in its own scope, whatever other patterns run beside.
    assert len({tuple(one["depends_on"]) for one in doubted}) > 1
    assert {one["verdict"] for one in measure.verdicts} == {
        "match", "timed_out", "late", "rejected",
    }  # fmt: skip
    for outcome in found.values():
        assert_all_counted(outcome, execution)
        assert outcome.judged == measure.judged
        assert (outcome.events, outcome.patterns) == (measure.events, measure.patterns)
