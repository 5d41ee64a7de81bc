"""The works measured of ketal: feeding a monitor, judging a finite log, a command, decoding.

Only the public interface is used, so the costs are those of a user. Garbage is collected as `ketal
run` collects it.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import ketal
from benchmarks.measuring import Inspection, Run, timed

BATCH = 512
DIGEST_BITS = 64


def matches_digest(matches: Sequence[ketal.Verdict], places: dict[ketal.Dot, int]) -> int:
    """Return a digest of the events of the matches, as a Java long."""
    digest = 0
    for match in matches:
        if isinstance(match, ketal.Match):
            for number, dot in enumerate(match.events):
                digest += (1 + 2 * number) * places[dot]
    digest %= 1 << DIGEST_BITS
    return digest - (digest >> DIGEST_BITS - 1 << DIGEST_BITS)


def count_matches(summary: ketal.Summary) -> int:
    """Return how many matches all patterns have."""
    return sum(pattern["matches"] for pattern in summary["patterns"].values())


def incompleteness(verdicts: Sequence[ketal.Verdict]) -> str:
    """Return why the result is incomplete, or an empty string."""
    overflows = [verdict for verdict in verdicts if isinstance(verdict, ketal.Overflow)]
    return f"incomplete: {overflows[0].limit}" if overflows else ""


@dataclass
class MonitorFeed:
    """Events in memory, fed to a monitor in batches.

    Attributes
    ----------
    program : ketal.Program
        The patterns.
    events : sequence of ketal.Event
        The events in the order of arrival.
    unit : str
        What the rate counts: `events` or `matches`.
    timed : bool
        Whether time is advanced with each batch; under CausalOrder only that ends a window.
    closing : bool
        Whether the stream ends within the run.
    """

    program: ketal.Program
    events: Sequence[ketal.Event]
    unit: str = "events"
    timed: bool = False
    closing: bool = False

    def feed(self, take: Callable[[list[ketal.Verdict]], None] | None = None) -> int:
        """Feed all events to a new monitor; return how many matches it counts."""
        monitor, events = ketal.Monitor(self.program), self.events
        for begin in range(0, len(events), BATCH):
            batch = events[begin : begin + BATCH]
            verdicts = monitor.feed_many(batch)
            if take is not None:
                take(verdicts)
            if self.timed:
                last_s = batch[-1].time
                assert last_s is not None
                verdicts = monitor.advance_time(last_s)
                if take is not None:
                    take(verdicts)
        if self.closing:
            verdicts = monitor.close()
            if take is not None:
                take(verdicts)
        return count_matches(monitor.summary)

    def run(self) -> Run:
        """Feed all events once."""
        run = timed(self.feed)
        units = run.matches if self.unit == "matches" else len(self.events)
        return run._replace(units=units, events=len(self.events))

    def inspect(self) -> Inspection:
        """Return the matches found."""
        places = {event.dot: place for place, event in enumerate(self.events)}
        digests: list[int] = []
        faults: set[str] = set()

        def take(verdicts: list[ketal.Verdict]) -> None:
            digests.append(matches_digest(verdicts, places))
            faults.add(incompleteness(verdicts))

        matches = self.feed(take)
        digest = sum(digests) % (1 << DIGEST_BITS)
        digest -= digest >> DIGEST_BITS - 1 << DIGEST_BITS
        return Inspection(matches, digest, ", ".join(sorted(faults - {""})))


@dataclass
class FiniteLog:
    """A finite log, judged to its last verdict.

    Attributes
    ----------
    program : ketal.Program
        The patterns.
    log : callable
        Returns the log, in memory or in a file.
    events : int
        How many events it holds.
    unit : str
        What the rate counts: `events` or `matches`.
    listing : bool
        Whether verdicts are listed, or only the summary is made.
    """

    program: ketal.Program
    log: Callable[[], ketal.Log | Sequence[ketal.Event]]
    events: int
    unit: str = "events"
    listing: bool = True

    def run(self) -> Run:
        """Judge the log once."""

        def judge() -> int:
            verdicts = ketal.run(self.program, self.log(), listing=self.listing)
            for _ in verdicts:
                pass
            return count_matches(verdicts.summary)

        run = timed(judge)
        units = run.matches if self.unit == "matches" else self.events
        return run._replace(units=units, events=self.events)

    def inspect(self) -> Inspection:
        """Return the number of matches, without a digest of their events."""
        verdicts = ketal.run(self.program, self.log(), listing=self.listing)
        fault = incompleteness([v for v in verdicts if isinstance(v, ketal.Overflow)])
        return Inspection(count_matches(verdicts.summary), None, fault)


@dataclass
class PlainFunction:
    """A function over a number of units, without matches.

    Attributes
    ----------
    work : callable
        The function.
    units : int
        How many units a call processes.
    """

    work: Callable[[], object]
    units: int

    def run(self) -> Run:
        """Call the function once; its result is freed after the measured time."""
        results = []

        def once() -> int:
            results.append(self.work())
            return 0

        return timed(once)._replace(units=self.units, events=self.units)

    def inspect(self) -> None:
        """Return None: there are no matches to compare."""


@dataclass
class Command:
    """`ketal run --output json` as a process of its own that writes a file, from start to end.

    Attributes
    ----------
    pattern : Path
        The file of patterns.
    log : Path
        The log.
    out : Path
        The file to which verdicts are written.
    events : int
        How many the log holds.
    """

    pattern: Path
    log: Path
    out: Path
    events: int

    def run(self) -> Run:
        """Run the command once; the units are matches."""
        words = [sys.executable, "-m", "ketal", "run", "--output", "json", "--write", str(self.out)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = timed(
            lambda: (
                subprocess.run([*words, str(self.pattern), str(self.log)], check=True).returncode
            )
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        core_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        matches = count_matches(self._summary())
        return Run(matches, run.clock_s, core_s, matches, self.events)

    def inspect(self) -> Inspection:
        """Run the command; return the number of matches that it wrote."""
        self.run()
        return Inspection(count_matches(self._summary()), None)

    def _summary(self) -> ketal.Summary:
        with self.out.open("rb") as lines:
            for line in lines:
                last = line
        summary: ketal.Summary = msgspec.json.decode(last)["summary"]
        return summary


@dataclass
class Soak:
    """`benchmarks.soak` as a process of its own, whose memory is measured.

    Attributes
    ----------
    events : int
        How many events are fed.
    """

    events: int

    def run(self) -> Run:
        """Run the soak once."""
        words = [sys.executable, "-m", "benchmarks.soak", str(self.events)]
        printed = ""

        def soak() -> int:
            nonlocal printed
            printed = subprocess.check_output(words, text=True)
            return 0

        clock_s = timed(soak).clock_s
        events, core_s, matches, growth = re.findall(r"[\d.]+", printed.splitlines()[-1])
        return Run(int(events), clock_s, float(core_s), int(matches), int(events), float(growth))

    def inspect(self) -> None:
        """Return None: there are no matches to compare."""


def decode(path: Path) -> None:
    """Decode each line of a file, and nothing more."""
    decoder = msgspec.json.Decoder()
    with path.open("rb") as lines:
        for line in lines:
            decoder.decode(line)
