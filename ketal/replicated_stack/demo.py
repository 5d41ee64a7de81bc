"""`ketal demo`: a bug in the replicated stack, found while the stack runs, and explained.

Processes run the stack; the events that they record are sent over TCP to a monitor, which judges
them on arrival. Then the first verdict is explained and drawn, and its pattern is run on the same
events in 1,000 other orders.

The one rule: everything shown is the result of the run; nothing is prepared in advance.
"""

from __future__ import annotations

import random
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ketal
from ketal.errors import SettingError
from ketal.explanation.explaining import diagram, explain_verdict
from ketal.explanation.judged_log import JudgedLog
from ketal.model.wording import counted
from ketal.replicated_stack.cluster import RunPlan, Topic, run
from ketal.replicated_stack.node import Bug
from ketal.replicated_stack.tables import events_of, protocol, recorded_log
from ketal.replicated_stack.transport import Faults
from ketal.trace import Collector, TopicCollector

RUNS_MAX = 50
NODES, STEPS, OFF, LATE_S, PAUSE_S = 3, 8, 0.3, 0.02, 0.04
WAIT_S = 30.0
"""How long to wait for events in flight after the processes have ended."""
WIDTH = 80
_PRINTED_CALLS = ("on", "off", "push", "pop")
"""The calls of the stack that are printed."""


class Demo:
    """The demonstration.

    `seed` is the first seed of the workload; after a run without a fault, the next one is used.
    `folder` is for the logs and the page; None is a new temporary folder. `shuffles` is how many
    orders of arrival are tried, and `line` prints a line. With `kafka`, events are sent through a
    real Kafka broker, which the demo starts.
    """

    def __init__(
        self,
        seed: int,
        bug: Bug,
        folder: Path | None,
        shuffles: int,
        line: Callable[[str], None],
        *,
        kafka: bool = False,
    ) -> None:
        self._kafka = kafka
        self._seed, self._bug, self._shuffles = seed, bug, shuffles
        self._folder = folder or Path(tempfile.mkdtemp(prefix="ketal-demo-"))
        self._program = protocol()
        self._line = line

    def run(self) -> bool:
        """Run and judge the stack until a fault is found; return whether one was."""
        if not self._kafka:
            return self._run()
        from ketal.streaming.broker.server import Broker

        self._line("Starting a Kafka broker.")
        with Broker(self._folder / "kafka", notify=self._line) as broker:
            return self._run(broker.bootstrap_servers)

    def _run(self, servers: str = "") -> bool:
        self._line("A stack is replicated on 3 nodes, processes that communicate over TCP. The")
        self._line("network loses, duplicates and delays messages. A node takes part in the")
        self._line(f"messaging only in sessions, while it is on. Planted bug: {self._bug.value}.")
        for number in range(RUNS_MAX):
            seed, folder = self._seed + number, self._folder / f"run{number + 1}"
            self._line("")
            self._line(f"run {number + 1}, seed {seed}:")
            monitor = _WatchedMonitor(self._program, self._line)
            self._run_once(seed, folder, monitor, servers)
            monitor.close()
            if monitor.failure is not None:
                raise monitor.failure
            if monitor.verdicts:
                break
            self._line(f"  {monitor.events} events, no verdicts")
        else:
            return False
        self._line(f"  {monitor.events} events, {counted(monitor.verdicts, 'verdict')}")
        pattern = self._explain(folder)
        if self._shuffles:
            self._shuffle(folder, pattern)
        self._write_page(folder)
        return True

    def _run_once(self, seed: int, folder: Path, monitor: _WatchedMonitor, servers: str) -> None:
        def run_to(collector: tuple[str, int] | Topic) -> None:
            slow = Faults(late_s=LATE_S)
            plan = RunPlan(
                seed, self._bug, NODES, STEPS, slow, collector=collector, pause_s=PAUSE_S, off=OFF
            )
            run(plan, folder)

        if not servers:
            with Collector(monitor) as collector:
                try:
                    run_to(collector.address)
                finally:
                    # A thread that still runs compiled code when Python exits may abort it.
                    collector.wait(timeout_s=WAIT_S)
            return
        from ketal.streaming.kafka.event_topics import make_consumer, make_topic

        topic = Topic(servers, f"ketal-demo-{seed}")
        make_topic(servers, topic.name, partitions=4)
        with TopicCollector(make_consumer(servers, topic.name), monitor) as by_topic:
            run_to(topic)
            by_topic.wait(len(events_of(folder)), timeout_s=WAIT_S)

    # --- after the run ---

    def _explain(self, folder: Path) -> str:
        """Explain the first verdict; return its pattern."""
        judged = JudgedLog(self._program, recorded_log(folder))
        first = next(v for v in judged.verdicts if isinstance(v, ketal.Violation | ketal.Match))
        explanation = explain_verdict(judged, first)
        self._line("")
        self._line("Why:")
        for text in (line.replace(f"{folder}/", "") for line in explanation.lines()):
            indent = " " * (2 + len(text) - len(text.lstrip()))
            for line in _wrapped(text.strip(), indent, indent + "  "):
                self._line(line)
        self._line("")
        self._line("The events around it, one column per node, time running downwards:")
        for text in diagram(judged, explanation):
            self._line(f"  {text}"[:WIDTH])
        return first.pattern

    def _shuffle(self, folder: Path, pattern: str) -> None:
        events = events_of(folder)
        causal = self._program.only([pattern])
        arrival = protocol(causal_order=False).only([pattern])
        right = _verdict_keys(causal, events)
        same, counts = 0, Counter[str]()
        for number in range(self._shuffles):
            order = random.Random(number).sample(events, len(events))
            answers = _verdict_keys(arrival, order)
            counts["false"] += bool(answers - right)
            counts["missed"] += bool(right - answers)
            counts["right"] += answers == right
            same += _verdict_keys(causal, order) == right
        n = f"{self._shuffles:,}"
        self._line("")
        times = counted(self._shuffles, "time")
        self._line(f"The same events, shuffled {times}, and the automaton of {pattern}:")
        self._line(f"  with order CausalOrder   the same answer in {same:,} of {n}")
        self._line(
            f"  with order arrival       the right answer in {counts['right']:,} of {n}; "
            f"{counts['false']:,} with false"
        )
        self._line(f"                           alarms, {counts['missed']:,} with missed verdicts")

    def _write_page(self, folder: Path) -> None:
        page = self._folder / "page.html"
        ketal.view(recorded_log(folder), self._program, title="The replicated stack").write(page)
        self._line("")
        self._line("The logs, and a page that shows the run in a browser:")
        self._line(f"  {folder}")
        self._line(f"  {page}")


class _WatchedMonitor:
    """The monitor of a run, which prints the calls and the verdicts as they arrive."""

    def __init__(self, program: ketal.Program, line: Callable[[str], None]) -> None:
        self._line = line
        self.failure: Exception | None = None
        """Why a line could not be printed, as to a closed pipe; no more are printed then.

        It is not raised where it happens: in a thread of the collector, which would report it."""
        self.events = self.verdicts = 0
        handlers = dict.fromkeys(("violation", "match"), self._print_verdict)
        self._monitor = ketal.Monitor(program, on=handlers)
        self.close = self._monitor.close

    def feed(self, item: Any, *, place: str = "") -> object:
        """Print the event, then feed it."""
        if isinstance(item, ketal.Event):
            self.events += 1
            call = item.type.removeprefix("ReplicatedStack.")
            if call in _PRINTED_CALLS:
                self._print(f"  {item.dot!s:<8} {call} {item.data.get('value', '')}".rstrip())
        return self._monitor.feed(item, place=place)

    def _print_verdict(self, verdict: Any) -> None:
        self.verdicts += 1
        for line in _wrapped(str(verdict), "  !! ", "     "):
            self._print(line)

    def _print(self, line: str) -> None:
        if self.failure is None:
            try:
                self._line(line)
            except (OSError, SettingError) as fault:
                self.failure = fault


def _verdict_keys(program: ketal.Program, events: Sequence[ketal.Event]) -> set[tuple[str, str]]:
    """Return the verdicts: scope and event of each violation, scope and text of each match."""
    result = ketal.run(program, events)
    violations = {(str(verdict.scope), str(verdict.event)) for verdict in result.violations}
    return violations | {(str(verdict.scope), str(verdict)) for verdict in result.matches}


def _wrapped(text: str, first: str, later: str) -> list[str]:
    """Return text in lines of at most `WIDTH`, broken at spaces."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
