"""Late, missing and duplicate events: every message is in one count, in every way the same one.

An execution loses events, has others twice, and malformed messages among them. What `ketal.run`
says of that file is said in every way where no event has to wait; what waits for a lost event is
held back at the end of a stream, and there a `Monitor` is the measure.
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
from tests.streaming.ways import Execution, Said

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
    """Return the events of four nodes that hear of each other, a second apart."""
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
    """Return what is left of events, what of it comes twice, and what is malformed."""
    chance = random.Random(seed)
    half = len(whole) // 2
    left = [line for at, line in enumerate(whole) if at < half or chance.random() < 0.7]
    twice = [line for line in left if chance.random() < 0.3]
    return left, twice, list(MALFORMED)


def in_all_ways(
    execution: Execution, spark: SparkSession, broker: Broker, folder: Path
) -> dict[str, Said]:
    topics = ways.produced(broker, [execution], f"damaged-{uuid.uuid4().hex[:8]}")
    streamed = ways.by_spark_stream([execution], spark, broker, topics, folder)
    return {
        "monitor": ways.by_monitor(execution),
        "process": ways.by_process(execution, broker, topics[execution.name], folder),
        "spark": streamed[execution.name],
        "table": ways.by_spark_batch(execution, spark, broker, topics[execution.name]),
    }


def all_accounted(said: Said, execution: Execution) -> None:
    """Hold that each message that was consumed is in one count."""
    counts = dict(said.events)
    read = counts.pop("read")
    assert read == sum(counts.values())
    assert len(said.of("rejected")) == counts["rejected"]
    assert len(said.of("late")) == counts["late"]
    if said.messages is not None:
        assert said.messages == len(execution.messages) == read + (said.control or 0)


def test_missing_and_duplicate_and_malformed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    left, twice, malformed = damaged(lines())
    assert len(left) < 75
    assert len(twice) > 15
    execution = ways.shuffled(
        "damaged", ketal.compile(FORKS + WAITING), [*left, *twice, *malformed], seed=3
    )
    run = ways.by_run(execution, tmp_path)
    found = in_all_ways(execution, spark, broker, tmp_path)
    measure = found["monitor"]
    for said in (run, *found.values()):
        all_accounted(said, execution)
        assert said.events["read"] == len(left) + len(twice) + len(malformed)
        assert said.events["duplicates"] == len(twice)
        assert said.events["rejected"] == len(malformed)
    for said in found.values():
        assert said.judged == measure.judged
        assert (said.events, said.patterns) == (measure.events, measure.patterns)
    # Where no event waits it is what `ketal.run` says; a duplicate changes nothing.
    assert forks(measure) == forks(run)
    assert {one["verdict"] for one in measure.of("match", "timed_out")} == {"match", "timed_out"}
    once = ways.shuffled("once", execution.program, left, seed=4)
    assert ways.by_monitor(once).judged == measure.judged
    # A lost event holds back what waits for it, at the end of a stream; not in a file.
    assert measure.events["held_back"] > 0
    assert all(measure.patterns[name] != run.patterns[name] for name in ("Turns", "Unread"))
    assert measure.events["accepted"] + measure.events["held_back"] == run.events["accepted"]
    places = [sorted(one["place"] for one in found[way].of("rejected"))
              for way in ("process", "spark", "table")]  # fmt: skip
    assert places[0] == places[1] == places[2]


def forks(said: Said) -> list[str]:
    return ways.ordered(one for one in said.verdicts if one.get("pattern") == "Forks")


def test_late_events(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """What a watermark has passed is late, and counted once, and no pattern is offered it.

    On Spark the patterns are in two families, one of which has no window.
    """
    whole = lines()
    chance = random.Random(5)
    late = sorted(chance.sample(range(40), 9))
    contradiction = whole[60].replace(b'"n": 0', b'"n": 2').replace(b'"n": 1', b'"n": 2')
    kept = [line for number, line in enumerate(whole[:50]) if number not in late]
    ordered = [
        *kept,
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
    # A late event is missed in its own scope, whoever else is judged beside it.
    assert len({tuple(one["depends_on"]) for one in doubted}) > 1
    assert {one["verdict"] for one in measure.verdicts} == {
        "match", "timed_out", "late", "rejected",
    }  # fmt: skip
    for said in found.values():
        all_accounted(said, execution)
        assert said.judged == measure.judged
        assert (said.events, said.patterns) == (measure.events, measure.patterns)
