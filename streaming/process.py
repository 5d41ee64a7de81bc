"""The process engine: Kafka topics through one `Monitor`, each commit one transaction (DESIGN 7).

Consume, transform, produce, as in Kafka's KIP-98: what was judged since the last commit becomes one
transaction that holds the verdicts, the offsets, and, in the offsets' metadata, the name of the
snapshot and of this process. It happens whole or not at all, so a topic that is read committed has
each verdict once.

A session is one life of clients and state. Whatever a client raises ends the session, and the next
one begins where the last commit is: there is no other way to recover. Each session begins with a
commit of its own, which fences an earlier process of the job and says whose the offsets are now; a
process that finds another one's name there was replaced, and ends.

The one rule: state, offsets and verdicts move together or not at all.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from ketal.errors import SettingError, StateError
from ketal.event import Control, Event
from ketal.monitor import Monitor
from ketal.program import Program
from ketal.streaming import clients
from ketal.streaming.clients import CLIENT_ERRORS, OUT_OF_RANGE, LostError, within
from ketal.streaming.job import Job
from ketal.streaming.messages import Reader, place_of
from ketal.streaming.metrics import Figures
from ketal.streaming.outputs import PENDING_BYTES_MAX, Outputs
from ketal.streaming.saved import Saved
from ketal.streaming.watermarks import Watermarks
from ketal.verdicts import Rejected, Verdict

POLL_MS = 200
RETRY_FIRST_S, RETRY_MOST_S = 0.2, 3.0
SAVING_SHARE = 5
"""Saving takes a fifth of the time at most: a large state is saved less often."""
RECOMMIT_S = 3_600
"""Offsets that are committed no more expire, after days; a quiet job says them again."""
LOOK_S = 1.0
PARTITIONS_S = 30.0


@dataclass
class Counts:
    """What became of the messages; `messages` is the sum of the monitor's `read` and of these."""

    messages: int = 0
    control: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the `kafka` object of the summary."""
        return {"messages": self.messages, "control": self.control}


@dataclass
class Hooks:
    """What the engine tells whoever runs it.

    Parameters
    ----------
    say : callable
        Shows a verdict on standard output.
    flush : callable
        Hands over what was shown.
    tell : callable
        Says what happened, in a sentence.
    look : callable
        Called about once a second, with the figures.
    """

    say: Callable[[Verdict], None]
    flush: Callable[[], None]
    tell: Callable[[str], None]
    look: Callable[[Figures], None] = field(default=lambda figures: None)


def uses_time(program: Program) -> bool:
    """Return whether time decides anything: a window, or an order that goes by it."""
    return any(
        compiled.window_us is not None or any((order.frontier, order.gap, order.idle))
        for compiled in program.compiled
        for order in (compiled.pattern.order,)
    )


class Engine:
    """A job that runs in this process.

    Parameters
    ----------
    job : Job
        What runs.
    program : Program
        The patterns.
    hooks : Hooks
        Who is told.

    Raises
    ------
    SettingError
        If Kafka's properties are wrong, or a file cannot be opened.
    """

    def __init__(self, job: Job, program: Program, hooks: Hooks) -> None:
        clients.check_properties(job.properties)
        self.job = job
        self.program = program
        self.hooks = hooks
        self.owner = uuid.uuid4().hex
        self.claimed = False
        self.stopping = False
        self.figures = Figures()
        self.summary: dict[str, Any] | None = None
        self.failing_since_s: float | None = None
        self.ends: dict[TopicPartition, int] | None = None

    def stop(self) -> None:
        """Ask the engine to commit and to return."""
        self.stopping = True

    def run(self) -> None:
        """Run until the stream ends or `stop` is called; all is committed then.

        Raises
        ------
        LostError
            If Kafka is lost for good, or another process took over.
        StateError
            If the saved state does not fit.
        SettingError
            If the settings are wrong, or a file cannot be written.
        """
        wait_s = RETRY_FIRST_S
        while True:
            session = _Session(self)
            try:
                session.open()
                wait_s = RETRY_FIRST_S
                session.live()
                return
            except OUT_OF_RANGE as error:
                raise _gone(self.job, error) from None
            except CLIENT_ERRORS as error:
                self._failed(error)
            finally:
                session.close()
            self._wait(wait_s)
            if self.stopping:
                return
            wait_s = min(2 * wait_s, RETRY_MOST_S)

    def _failed(self, error: BaseException) -> None:
        """Take note of what a client raised; raise what cannot be mended."""
        wrong = clients.of_settings(error)
        if wrong is not None:
            raise wrong from None
        now_s = time.monotonic()
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        if self.failing_since_s is None:
            self.failing_since_s = now_s
            self.hooks.tell(f"Kafka at {self.job.bootstrap_servers} failed ({said}); trying again")
        self.figures.restarts += 1
        if 1e3 * (now_s - self.failing_since_s) >= self.job.lost_after_ms:
            raise LostError(
                f"Kafka at {self.job.bootstrap_servers} is lost since "
                f"{now_s - self.failing_since_s:.0f} s ([kafka] lost_after_ms): {said}"
            ) from None

    def _wait(self, wait_s: float) -> None:
        until_s = time.monotonic() + wait_s
        while not self.stopping and time.monotonic() < until_s:
            time.sleep(0.05)


def _gone(job: Job, error: BaseException) -> StateError:
    return StateError(
        f"the messages that group {job.group_id} is to go on with are no longer in the topic "
        f"({type(error).__name__}: {error}); take another group_id to start anew"
    )


class _Session:
    """One life of clients and state."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.job = engine.job
        self.program = engine.program
        self.timed = uses_time(engine.program)
        self.call_s = engine.job.call_timeout_ms / 1e3
        self.reader = Reader(self.job.source, self.job.limits)
        self.producer: Any = None
        self.consumer: Any = None
        self.outputs = Outputs(self.job, engine.hooks.say, engine.hooks.flush)
        self.counts = Counts()
        self.positions: dict[TopicPartition, int] = {}
        self.dirty = False
        self.committed_s = 0.0
        self.commit_after_s = 0.0
        self.looked_s = 0.0
        self.listed_s = time.monotonic()

    # --- begin and end ---

    def open(self) -> None:
        """Connect, fence whoever was here before, take up the state, and claim it."""
        engine = self.engine
        self._check_owner()
        self.producer = within(4 * self.call_s, "a transaction", clients.producer_of, self.job)
        self.consumer = clients.consumer_of(self.job)
        partitions = self._partitions()
        self.consumer.assign(partitions)
        timeout_ms = self.job.call_timeout_ms
        committed = {
            one: self.consumer.committed(one, metadata=True, timeout_ms=timeout_ms)
            for one in partitions
        }
        self.positions = self._positions(committed)
        for one, offset in self.positions.items():
            self.consumer.seek(one, offset)
        self.watermarks = Watermarks(
            [(p.topic, p.partition) for p in partitions],
            lateness_ms=self.job.lateness_ms,
            idle_ms=self.job.idle_ms,
            now_ms=_now_ms(),
        )
        self.saved = Saved(self.job.state)
        self._take_up(committed)
        if engine.ends is None and self.job.until_end:
            engine.ends = self.consumer.end_offsets(partitions, timeout_ms=timeout_ms)
        self.commit()
        engine.claimed = True
        if engine.failing_since_s is not None:
            engine.hooks.tell("Kafka is back; going on from the last commit")

    def _check_owner(self) -> None:
        """End this process if another one has claimed the offsets meanwhile."""
        if not self.engine.claimed:
            return
        consumer = clients.consumer_of(self.job, committed_only=False)
        try:
            for topic in self.job.topics:
                first = TopicPartition(topic, 0)
                held = consumer.committed(first, metadata=True, timeout_ms=self.job.call_timeout_ms)
                owner = None if held is None else _metadata(held.metadata).get("owner")
                if owner is not None and owner != self.engine.owner:
                    raise LostError(
                        f"another process of group {self.job.group_id} has taken over (fenced)"
                    )
        finally:
            clients.close_consumer(consumer)

    def _partitions(self) -> list[TopicPartition]:
        """Return the partitions of the input; each topic must be there."""
        out = []
        for topic in self.job.topics:
            out += [TopicPartition(topic, n) for n in sorted(self._numbers(topic))]
        for target in self.job.outputs:
            if target.kind == "kafka":
                self._numbers(target.name)
        return out

    def _numbers(self, topic: str) -> set[int]:
        numbers: set[int] | None = self.consumer.partitions_for_topic(topic)
        if numbers:
            return numbers
        if self.engine.claimed:
            # A broker that has just come back may not know of it yet.
            raise TimeoutError(f"there is no topic {topic} any more")
        raise SettingError(
            f"there is no topic {topic} at {self.job.bootstrap_servers}; create it first"
        )

    def _positions(self, committed: dict[TopicPartition, Any]) -> dict[TopicPartition, int]:
        """Return where to begin: where the last commit is, else as `start` says."""
        timeout_ms = self.job.call_timeout_ms
        fresh = [one for one, held in committed.items() if held is None]
        known = {one.topic for one, held in committed.items() if held is not None}
        # A partition that was added to a topic later is read whole.
        first = [one for one in fresh if self.job.start == "earliest" or one.topic in known]
        last = [one for one in fresh if one not in first]
        out = {one: held.offset for one, held in committed.items() if held is not None}
        if first:
            out.update(self.consumer.beginning_offsets(first, timeout_ms=timeout_ms))
        if last:
            out.update(self.consumer.end_offsets(last, timeout_ms=timeout_ms))
        return out

    def _take_up(self, committed: dict[TopicPartition, Any]) -> None:
        """Restore the state that the offsets name, or begin with none."""
        held = [_metadata(one.metadata) for one in committed.values() if one is not None]
        names = [str(one.get("snapshot", "")) for one in held]
        options = {"limits": self.job.limits, "execution": ""}
        if not held:
            self.monitor = Monitor(self.program, **options)  # type: ignore[arg-type]
            return
        fresh = self.job.on_change == "fresh"
        try:
            if "" in names:
                raise StateError(
                    f"the offsets of group {self.job.group_id} were committed by another program"
                )
            # A topic that was left out for a while has an older one.
            state = self.saved.read(max(names))
            self.monitor = Monitor.restore(self.program, state["monitor"], **options)
        except StateError as fault:
            if fresh and not self.engine.claimed:
                self.engine.hooks.tell(f"{fault}; starting anew at the stored offsets")
                self.monitor = Monitor(self.program, **options)  # type: ignore[arg-type]
                return
            raise StateError(
                f"{fault}\n  hint: --on-change fresh starts anew at the stored offsets, another "
                "group_id at the beginning of the topics"
            ) from None
        self.counts = Counts(**state["counts"])
        self.watermarks.restore(state["watermarks"])

    def close(self) -> None:
        """Discard clients and state."""
        self.outputs.close()
        if self.producer is not None:
            clients.close_producer(self.producer)
        if self.consumer is not None:
            clients.close_consumer(self.consumer)

    # --- live ---

    def live(self) -> None:
        """Consume until there is a reason to stop, and commit."""
        engine = self.engine
        while not (engine.stopping or self.watermarks.all_ended or self._at_end()):
            self._poll()
            now_s = time.monotonic()
            due = now_s >= self.commit_after_s or self.outputs.bytes >= PENDING_BYTES_MAX
            if due and (self.dirty or now_s - self.committed_s >= RECOMMIT_S):
                self.commit()
                engine.failing_since_s = None
            if now_s - self.looked_s >= LOOK_S:
                self.looked_s = now_s
                self._look()
        if self.dirty:
            self.commit()
        self._look()

    def _poll(self) -> None:
        left_ms = 1e3 * (self.commit_after_s - time.monotonic())
        timeout_ms = max(1, min(POLL_MS, int(left_ms))) if self.dirty else POLL_MS
        batches = self.consumer.poll(timeout_ms=timeout_ms)
        if batches:
            self.dirty = True
            self.watermarks.heard(((p.topic, p.partition) for p in batches), _now_ms())
        for one in sorted(batches):
            judge = self._judge
            for record in batches[one]:
                judge(one, record)
                if self.watermarks.all_ended:
                    return

    def _judge(self, one: TopicPartition, record: Any) -> None:
        """Take one message."""
        self.positions[one] = record.offset + 1
        self.counts.messages += 1
        if self.watermarks.has_ended(one):
            reason = "its partition has ended (ketal.end)"
            self._add(self.monitor.reject(Rejected(place=place_of(record), reason=reason)), record)
            return
        item = self.reader.item(record)
        if isinstance(item, Event):
            place = f"{record.topic}/{record.partition}/{record.offset}"
            verdicts = self.monitor.feed(item, place=place)
            if verdicts:
                self._add(verdicts, record)
            if self.timed and item.time is not None and self.watermarks.saw(one, float(item.time)):
                self._advance(record)
        elif isinstance(item, Rejected):
            self._add(self.monitor.reject(item), record)
        else:
            self._control(one, item, record)

    def _control(self, one: TopicPartition, control: Control, record: Any) -> None:
        self.counts.control += 1
        if control.kind == "watermark":
            assert control.time is not None
            self.watermarks.said(one, control.time)
            self._advance(record)
        elif control.kind != "end" or self.watermarks.end(one):
            self._add(self.monitor.control(control), record)
        else:
            self._advance(record)

    def _advance(self, record: Any = None) -> None:
        mark_s = self.watermarks.advanced()
        if mark_s is not None:
            self._add(self.monitor.advance_time(mark_s), record)
            self.dirty = True

    def _add(self, verdicts: list[Verdict], record: Any) -> None:
        for verdict in verdicts:
            self.outputs.add(verdict, None if record is None else record.key)
            self.engine.figures.verdict(verdict.kind)

    def _at_end(self) -> bool:
        """Return whether the ends that there were at the start have been reached."""
        ends = self.engine.ends
        if ends is None:
            return False
        return all(self._position(one) >= end for one, end in ends.items())

    def _position(self, one: TopicPartition) -> int:
        """Return what is read next; the client goes past the marks of transactions."""
        position = self.consumer.position(one, timeout_ms=self.job.call_timeout_ms)
        return self.positions[one] if position is None else int(position)

    def _look(self) -> None:
        """Look at the clock: idle partitions, new partitions, figures."""
        behind = {}
        for one in self.positions:
            high = self.consumer.highwater(one)
            behind[one] = 0 if high is None else max(0, high - self._position(one))
        if self.timed:
            waiting = {(one.topic, one.partition) for one, lag in behind.items() if lag}
            self.watermarks.look(waiting, _now_ms())
            self._advance()
        now_s = time.monotonic()
        if now_s - self.listed_s >= PARTITIONS_S:
            self.listed_s = now_s
            if set(self._partitions()) != set(self.positions):
                raise TimeoutError("a topic has other partitions than before")
        self.engine.figures.look(
            now_s=now_s,
            messages=self.counts.messages,
            control=self.counts.control,
            lag={f"{one.topic}/{one.partition}": lag for one, lag in behind.items()},
            monitor=self.monitor,
            watermark_s=self.watermarks.watermark_s,
        )
        self.engine.hooks.look(self.engine.figures)

    # --- commit ---

    def commit(self) -> None:
        """Save the state and commit it, the offsets and the verdicts in one transaction."""
        began_s = time.monotonic()
        name = self.saved.write(
            {
                "monitor": self.monitor.snapshot(),
                "watermarks": self.watermarks.state(),
                "counts": self.counts.to_dict(),
            }
        )
        saving_s = time.monotonic() - began_s
        self.outputs.write_files()
        text = json.dumps({"snapshot": name, "owner": self.engine.owner})
        offsets = {
            one: OffsetAndMetadata(offset, text, -1) for one, offset in self.positions.items()
        }
        self.producer.begin_transaction()
        sent = self.outputs.send(self.producer)
        try:
            within(
                self.call_s,
                "sending offsets",
                self.producer.send_offsets_to_transaction,
                offsets,
                self.consumer.group_metadata(),
            )
            within(self.call_s, "the commit", self.producer.commit_transaction)
        except CLIENT_ERRORS as error:
            # What a message failed of says more than that the transaction did.
            for future in sent:
                if future.failed():
                    raise future.exception from error
            raise
        self.saved.committed(name)
        self.outputs.clear()
        self.dirty = False
        self.engine.summary = {**self.monitor.summary, "kafka": self.counts.to_dict()}
        now_s = time.monotonic()
        self.committed_s = now_s
        self.engine.figures.committed(now_s - began_s)
        least_s = self.job.commit_interval_ms / 1e3
        self.commit_after_s = now_s + max(least_s, (SAVING_SHARE - 1) * saving_s)


def _metadata(text: str | None) -> dict[str, Any]:
    """Return what a commit says beside the offset; nothing if it is not one of ketal's."""
    try:
        said = json.loads(text or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _now_ms() -> float:
    return 1e3 * time.monotonic()
