"""A tracer records events, and does not change the behaviour of the program."""

from __future__ import annotations

import asyncio
import enum
import functools
import logging
import pickle
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ketal
from ketal.errors import SettingError
from ketal.trace import (
    AsgiMiddleware,
    Collector,
    KafkaSink,
    LogHandler,
    TracedQueue,
    TracedSocket,
    TracedStreams,
    TracedThread,
    Tracer,
)  # fmt: skip
from ketal.trace import message_header as header
from ketal.trace.plain_values import ITEMS_MAX, TEXT_MAX, VALUES_MAX, plain
from ketal.trace.recording import FAILURES_MAX
from tests.logged import ketal_records
from tests.trace.test_exactness import ListSink
from tests.work import calls_at_most


class Failing:
    """A sink whose `write` raises."""

    def write(self, event: Mapping[str, Any]) -> None:
        raise OSError("no space left")


class Unprintable:
    """An object whose `repr` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_call_is_an_event_with_arguments_and_result() -> None:
    events = ListSink()
    tracer = Tracer("n", events)

    class Stack:
        @tracer.event
        def push(self, value: int, *more: int, key: str = "k") -> str:
            return f"{value}{key}"

        @classmethod
        @tracer.event(type="made", result=False)
        def made(cls, result: int) -> None:
            pass

    assert Stack().push(1, 2, 3, key="x") == "1x"
    assert Stack().push(1) == "1k"
    Stack.made(result=5)
    pushed = {"value": 1, "arg_types": ["int", "str"], "result_type": "str"}
    assert [(event["type"], event["data"]) for event in events] == [
        (
            "Stack.push",
            {
                "value": 1, "more": [2, 3], "key": "x", "result": "1x", "result_type": "str",
                "arg_types": ["int", "tuple", "str"],
            },
        ),
        ("Stack.push", {**pushed, "key": "k", "result": "1k"}),
        ("made", {"arg_result": 5, "arg_types": ["int"]}),
    ]  # fmt: skip


def test_all_kinds_of_callables_are_recorded() -> None:
    events = ListSink()
    tracer = Tracer("n", events)

    class Stack:
        @tracer.event
        @classmethod
        def made(cls, size: int) -> int:
            return size

        @tracer.event(at="begin")
        @staticmethod
        def checked(size: int) -> int:
            return size

        def __call__(self, size: int) -> int:
            return size

    assert (Stack.made(1), Stack().made(2), Stack.checked(3), Stack().checked(4)) == (1, 2, 3, 4)
    assert tracer.event(Stack())(5) == 5
    assert tracer.event(functools.partial(Stack.checked, size=6))() == 6
    assert tracer.event({7: 8}.pop)(7) == 8
    assert [event["type"] for event in events] == [
        "Stack.made", "Stack.made", "Stack.checked", "Stack.checked", "Stack", "Stack.checked",
        "partial", "dict.pop",
    ]  # fmt: skip
    assert events[0]["data"]["size"] == 1
    assert not tracer.failures


def test_call_of_an_object_is_recorded_when_its_coroutine_ends() -> None:
    events = ListSink()
    tracer = Tracer("n", events)

    class Adder:
        async def __call__(self, one: int, two: int) -> int:
            tracer.record("within")
            return one + two

    for function, arguments in ((Adder(), (1, 2)), (functools.partial(Adder(), 1), (2,))):
        assert asyncio.run(tracer.event(type="add")(function)(*arguments)) == 3
    assert [event["type"] for event in events] == ["within", "add", "within", "add"]
    assert [event["data"].get("result") for event in events] == [None, 3, None, 3]


def test_a_pattern_reads_the_recorded_attributes() -> None:
    events = ListSink()
    tracer = Tracer("n", events)

    @tracer.event(type="Stack.push")
    def push(value: int) -> None:
        pass

    push(7)
    program = ketal.compile(
        "pattern P { event Push = call(NoneType Stack.push(int)) && value > 5; find any Push; }"
    )
    log = [ketal.Event(**event) for event in events]
    assert [verdict.kind for verdict in ketal.run(program, log)] == ["match"]


def test_exception_of_a_call_is_recorded_and_raised() -> None:
    events = ListSink()
    tracer = Tracer("n", events)

    @tracer.event
    def fails() -> None:
        raise ValueError("wrong")

    @tracer.event
    async def waits(seconds: float) -> int:
        await asyncio.sleep(seconds)
        if seconds:
            raise KeyError(seconds)
        return 3

    with pytest.raises(ValueError, match="wrong"):
        fails()
    assert asyncio.run(waits(0)) == 3
    with pytest.raises(KeyError):
        asyncio.run(waits(0.001))
    assert [event["data"].get("error") for event in events] == ["ValueError", None, "KeyError"]
    assert events[1]["data"]["result"] == 3


def test_the_program_continues_whatever_fails(caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer("n", Failing())

    @tracer.event
    def work(value: object) -> int:
        return 5

    with caplog.at_level(logging.WARNING, "ketal.trace"):
        assert [work(Unprintable()) for _ in range(3)] == [5, 5, 5]
        tracer.receive({"ketal-clock": "nonsense"})
        tracer.receive({})
        assert tracer.send()["ketal-clock"] == "1;n;n=6"
    assert dict(tracer.failures) == {
        "an event was not written: OSError: no space left": 6,
        "a message's clock cannot be read: 'nonsense' is not of the form version;node;clock": 1,
        "a message without the header ketal-clock was received": 1,
    }
    assert [record.getMessage() for record in ketal_records(caplog)] == [
        f"node n: {reason} (further occurrences are counted, not logged)"
        for reason in tracer.failures
    ]


def test_the_program_continues_if_a_filter_of_logging_raises() -> None:
    """A filter may expect an attribute that only the log records of the program have."""

    def reads(record: logging.LogRecord) -> bool:
        return bool(record.request_id)  # type: ignore[attr-defined]

    tracer, log = Tracer("n", Failing()), logging.getLogger("ketal.trace")
    log.addFilter(reads)
    try:
        for _ in range(2):
            tracer.record("t")
    finally:
        log.removeFilter(reads)
    assert tracer.failures == {"an event was not written: OSError: no space left": 2}


def test_failures_beyond_the_limit_are_counted_together_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Different:
        def write(self, event: Mapping[str, Any]) -> None:
            raise OSError(event["clock"]["n"])

    tracer = Tracer("n", Different())
    for _ in range(FAILURES_MAX + 20):
        tracer.record("t")
    assert tracer.failures["other failures"] == 20
    assert len(tracer.failures) == len(ketal_records(caplog)) == FAILURES_MAX + 1


@pytest.mark.parametrize("headers", [[("a", "b", "c")], {1: "x"}, {header.NAME: 5}, 7])
def test_invalid_headers_are_a_failure_and_the_event_is_recorded(headers: Any) -> None:
    events = ListSink()
    tracer = Tracer("n", events)
    tracer.receive(headers)
    assert [event["type"] for event in events] == ["receive"]
    (reason,) = tracer.failures
    assert reason.startswith("a message's clock cannot be read: ")


def test_event_that_was_not_written_leaves_a_gap() -> None:
    """Its counter is not reused, so a reader of the log detects the missing event."""
    events = ListSink()
    tracer = Tracer("n", events)
    tracer.record("one")
    recording = tracer._recorder
    whole, recording.sink = recording.sink, Failing()
    tracer.record("lost")
    recording.sink = whole
    tracer.record("three")
    assert [event["clock"] for event in events] == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("type", [5, b"x", "\ud800", "x" * 2_000_000])
def test_event_type_is_converted_to_valid_text(type: Any, tmp_path: Path) -> None:
    tracer = Tracer("n", tmp_path / "n.jsonl")
    tracer.record(type, **{"\ud800": 1, "y" * 2_000_000: 2})
    log = ketal.read_log(tmp_path / "n.jsonl")
    (event,) = log
    assert event.type in ("5", "b'x'", "?", "x" * (TEXT_MAX - 1) + "…")
    assert list(event.data.values()) == [1, 2]
    assert not log.rejected
    assert not tracer.failures


@pytest.mark.parametrize("type", ["", "ketal.end"])
def test_event_with_an_empty_or_reserved_type_is_counted(type: str) -> None:
    events = ListSink()
    tracer = Tracer("n", events)
    tracer.record(type)
    assert events == []
    assert tracer.failures.total() == 1


def test_node_name_that_is_no_valid_text_is_an_error() -> None:
    for node in (5, b"n"):
        with pytest.raises(TypeError, match="node must be a str"):
            Tracer(node, ListSink())  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="cannot be encoded as UTF-8"):
        Tracer("\ud800", ListSink())


def test_sink_and_monitor_of_another_class_are_an_error() -> None:
    with pytest.raises(TypeError, match="sink must be a path, or an object with write"):
        Tracer("n", 5)  # type: ignore[arg-type]
    program = ketal.compile("pattern P { event A = true; find A; }")
    with pytest.raises(TypeError, match=r"monitor must be a ketal\.Monitor or a Collector"):
        Tracer("n", ListSink(), monitor=program)  # type: ignore[arg-type]


def test_monitor_is_fed_one_event_at_a_time_by_several_threads() -> None:
    class Monitor:
        feeding = overlaps = fed = 0

        def feed(self, event: Any, *, place: str = "") -> None:
            self.feeding += 1
            self.overlaps += self.feeding > 1
            time.sleep(0.001)  # another thread runs meanwhile
            self.fed += 1
            self.feeding -= 1

    monitor = Monitor()
    tracer = Tracer("n", ListSink(), monitor=monitor)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            pool.submit(tracer.record, "work")
    assert (monitor.fed, monitor.overlaps) == (40, 0)


def test_future_without_a_clock_that_is_joined_is_a_failure() -> None:
    events = ListSink()
    tracer = Tracer("n", events, activity="task")

    async def work() -> None:
        tracer.record("work")

    async def main() -> None:
        await tracer.join(asyncio.gather(work(), work()))
        with ThreadPoolExecutor() as pool:
            future = pool.submit(tracer.bind(lambda: tracer.send("worked")))
            tracer.joined(future)  # type: ignore[arg-type]
            assert set(tracer.failures) == {
                "a _GatheringFuture is neither a thread nor a task, and no clock was handed over "
                "from it",
                "a Future is neither a thread nor a task, and no clock was handed over from it",
            }
            tracer.record("apart")
            tracer.receive(future.result(), "result")
        await tracer.join(work())

    asyncio.run(main())
    assert tracer.failures.total() == 2
    worked, apart, result = (
        next(event for event in events if event["type"] == type)
        for type in ("worked", "apart", "result")
    )
    assert worked["node"] not in apart["clock"]
    assert result["clock"][worked["node"]] == worked["clock"][worked["node"]]

    whole = Tracer("n", ListSink())  # whose events are all in one order
    whole.joined(Future())  # type: ignore[arg-type]
    assert not whole.failures


def test_carrier_without_a_tracer_is_an_error() -> None:
    tracer = Tracer("n", ListSink())
    other: Queue[int] = Queue()
    makers: list[Callable[[], object]] = [
        lambda: TracedQueue(tracer, other),  # type: ignore[arg-type]
        lambda: TracedSocket(tracer, other),  # type: ignore[arg-type]
        lambda: TracedStreams(tracer, other, other),  # type: ignore[arg-type]
        lambda: AsgiMiddleware(tracer, other),  # type: ignore[arg-type]
        lambda: TracedThread(other, target=print),  # type: ignore[arg-type]
        lambda: LogHandler(other),  # type: ignore[arg-type]
    ]
    for make in makers:
        with pytest.raises(TypeError, match="tracer must be a Tracer, not Queue"):
            make()
    with pytest.raises(TypeError, match="target must be callable, not None"):
        TracedThread(tracer, target=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="function must be callable, not None"):
        tracer.bind(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="producer must be an object with send"):
        KafkaSink("events", other)  # type: ignore[arg-type]


def test_activity_that_is_joined_before_its_end_is_a_failure() -> None:
    events = ListSink()
    tracer = Tracer("n", events, activity="task")
    end = threading.Event()

    async def work() -> None:
        tracer.record("work")
        await asyncio.sleep(30)

    async def main() -> None:
        tracer.record("begin")
        task = asyncio.create_task(work())
        thread = TracedThread(tracer, target=end.wait)
        thread.start()
        await asyncio.wait([task], timeout=0.01)
        tracer.joined(task)
        tracer.joined(thread)
        tracer.record("apart")
        task.cancel()
        await asyncio.wait([task])
        tracer.joined(task)
        tracer.record("joined")
        end.set()
        thread.join()

    asyncio.run(main())
    assert dict(tracer.failures) == {
        "a Task has not ended, and no clock was handed over from it": 1,
        "a TracedThread has not ended, and no clock was handed over from it": 1,
    }
    assert [event["clock"] for event in events if event["node"] == "n"] == [
        {"n": 1}, {"n": 2}, {"n": 3, "n/1": 1},
    ]  # fmt: skip


def test_tracer_cannot_be_pickled() -> None:
    tracer = Tracer("n", ListSink())
    for one in (tracer, TracedQueue([], tracer)):
        with pytest.raises(TypeError, match="create another one in the child process"):
            pickle.dumps(one)


@pytest.mark.parametrize("node", ["", "n#2"])
def test_invalid_node_name_or_activity_is_an_error(node: str) -> None:
    with pytest.raises(SettingError, match="not a valid name of a traced node"):
        Tracer(node, ListSink())
    with pytest.raises(SettingError, match="process, thread or task"):
        Tracer("n", ListSink(), activity="fiber")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("activity", "nodes"), [("process", ["n", "n"]), ("thread", ["n", "n"]), ("task", ["n", "n/1"])]
)
def test_tasks_of_one_thread_have_clocks_of_their_own_only_with_task(
    activity: Any, nodes: list[str]
) -> None:
    events = ListSink()
    tracer = Tracer("n", events, activity=activity)

    async def work() -> None:
        tracer.record("work")

    async def program() -> None:
        await asyncio.gather(work(), work())

    asyncio.run(program())
    assert [event["node"] for event in events] == nodes


def test_bound_work_in_a_pool_has_the_clock_of_its_binding() -> None:
    events = ListSink()
    tracer = Tracer("n", events, activity="thread")
    tracer.record("before")
    with ThreadPoolExecutor(1) as pool:
        work = tracer.bind(tracer.record)
        tracer.record("after")
        pool.submit(work, "within").result()
        pool.submit(tracer.record, "unbound").result()
        pool.submit(tracer.bind(tracer.record), "again").result()
    clocks = {event["type"]: event["clock"] for event in events}
    assert clocks["within"] == {"n": 1, "n/1": 1}
    assert clocks["unbound"] == {"n": 1, "n/1": 2}
    assert clocks["again"] == {"n": 2, "n/1": 3}


def end_task(number: int, frame: object) -> None:
    raise TimeoutError("the time of the task is over")


class TaskEnd:
    def __call__(self, number: int, frame: object) -> None:
        end_task(number, frame)


class Interrupted:
    """A value, a sink, headers, … during whose use a signal arrives."""

    def wait(self, *anything: object, **more: object) -> Any:
        signal.raise_signal(signal.SIGURG)

    __repr__ = __str__ = write = feed = items = wait


@pytest.mark.parametrize("handler", [end_task, TaskEnd(), partial(end_task)])
@pytest.mark.parametrize("place", ["repr", "sink", "monitor", "headers", "error", "filter"])
def test_exception_of_a_signal_handler_is_raised_in_the_program(place: str, handler: Any) -> None:
    """It is not a failure of tracing, and ends a task whose time is over."""
    interrupted = Interrupted()
    sinks: dict[str, Any] = {"sink": interrupted, "filter": Failing()}
    tracer = Tracer(
        "n", sinks.get(place, ListSink()), monitor=interrupted if place == "monitor" else None
    )

    @tracer.event
    def work(value: object) -> None:
        if place == "error":
            raise type("OddError", (Exception,), {"__str__": Interrupted.wait})

    log, earlier = logging.getLogger("ketal.trace"), signal.signal(signal.SIGURG, handler)
    waits = (lambda record: interrupted.wait()) if place == "filter" else (lambda record: True)
    log.addFilter(waits)
    try:
        with pytest.raises(TimeoutError, match="the time of the task is over"):
            tracer.receive(interrupted) if place == "headers" else work(
                interrupted if place == "repr" else 1
            )
    finally:
        signal.signal(signal.SIGURG, earlier)
        log.removeFilter(waits)
    assert tracer.failures.total() >= 1


def test_event_of_a_signal_handler_within_another_is_distinct() -> None:
    events = ListSink()
    tracer = Tracer("n", events)
    line = tracer._activities.current()
    counters = line._counters

    class Interrupted:
        def __next__(self) -> int:
            counter = next(counters)
            line._counters = counters
            tracer.record("handler")
            return counter

    line._counters = Interrupted()  # type: ignore[assignment]
    tracer.record("interrupted")
    tracer.record("next")
    assert [(e["type"], e["clock"]["n"]) for e in events] == [
        ("handler", 2), ("interrupted", 1), ("next", 3),
    ]  # fmt: skip


def test_log_records_are_events_except_the_tracers_own() -> None:
    events = ListSink()
    tracer = Tracer("n", events)
    logger = logging.getLogger("tests.trace")
    handler = LogHandler(tracer)
    logger.addHandler(handler)
    try:
        try:
            raise ValueError
        except ValueError:
            logger.exception("%s failed", "it")
    finally:
        logger.removeHandler(handler)
    handler.emit(logging.makeLogRecord({"name": "ketal.trace", "msg": "own"}))
    handler.emit(logging.makeLogRecord({"exc_info": True}))  # is not valid, and not raised
    assert [event["data"] for event in events] == [
        {
            "logger": "tests.trace", "level": "ERROR", "message": "it failed",
            "error": "ValueError",
        }
    ]  # fmt: skip


def test_repr_of_an_attribute_may_wait_for_a_thread_that_records() -> None:
    lock = threading.Lock()
    is_locked, is_shown = threading.Event(), threading.Event()
    events = ListSink()
    tracer = Tracer("n", events)

    class Guarded:
        def __repr__(self) -> str:
            is_shown.set()
            with lock:
                return "guarded"

    def record_with_lock() -> None:
        with lock:
            is_locked.set()
            is_shown.wait(60)
            tracer.record("within")

    threads = [
        threading.Thread(target=record_with_lock, daemon=True),
        threading.Thread(
            target=tracer.record, args=("shown",), kwargs={"value": Guarded()}, daemon=True
        ),
    ]
    threads[0].start()
    assert is_locked.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [event["type"] for event in events] == ["within", "shown"]


def test_sink_that_logs_adds_no_events() -> None:
    """As a Kafka producer does, while all log records of the program are recorded."""
    logger = logging.getLogger("tests.trace.sink")

    class Logging(ListSink):
        def write(self, event: Mapping[str, Any]) -> None:
            super().write(event)
            logger.warning("sent")

    events = Logging()
    handler = LogHandler(Tracer("n", events))
    logger.addHandler(handler)
    tracer = Tracer("m", events)
    try:
        for _ in range(2):
            logger.warning("by the program")
            tracer.record("step")
    finally:
        logger.removeHandler(handler)
    assert [event["type"] for event in events] == ["log", "step"] * 2


def test_thread_that_logs_does_not_wait_for_one_whose_tracer_logs() -> None:
    """A failed write, and a handler of the monitor, are logged while another thread logs."""
    writes, logger = threading.Event(), logging.getLogger("tests.trace.threads")
    logs = threading.Event()

    class Full(ListSink):
        def write(self, event: Mapping[str, Any]) -> None:
            if event["type"] == "step":
                writes.set()
                assert logs.wait(10)
                raise OSError("no space left")

    def handle(verdict: object) -> None:
        writes.set()
        assert logs.wait(10)
        logger.warning("a match")

    class Logged(LogHandler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "by the program":
                logs.set()
            super().emit(record)

    program = ketal.compile('pattern P { event A = type == "step"; find next A; }')
    monitor = ketal.Monitor(program, on={"match": handle})
    for sink, fed in ((Full(), None), (ListSink(), monitor)):
        writes.clear()
        logs.clear()
        with nullcontext() if fed is None else Collector(fed) as collector:
            tracer = Tracer("n", sink, monitor=collector)
            handler = Logged(tracer)
            loggers = logger, logging.getLogger("ketal.trace")
            for one in loggers:
                one.addHandler(handler)
            try:
                threads = [
                    threading.Thread(target=tracer.record, args=("step",), daemon=True),
                    threading.Thread(target=logger.warning, args=("by the program",), daemon=True),
                ]
                threads[0].start()
                assert writes.wait(10)
                threads[1].start()
                for thread in threads:
                    thread.join(10)
                assert not any(thread.is_alive() for thread in threads)
            finally:
                for one in loggers:
                    one.removeHandler(handler)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(st.dictionaries(NAMES, st.integers(1, 2**60), min_size=1), st.data())
def test_header_is_read_back_as_written(clock: dict[str, int], data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(sorted(clock)))
    calls = data.draw(st.lists(st.sampled_from(sorted(clock.items())), max_size=3))
    text = header.encoded(node, clock, calls)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert (
        header.decoded(text)
        == header.decoded(text.encode())
        == header.SenderKnowledge(
            clock, tuple(f"{name}@{counter}" for name, counter in [(node, clock[node]), *calls])
        )
    )


@pytest.mark.parametrize(
    "text",
    ["", ";;", "2;n;n=1", "1;n;m=1", "1;n;n=0", "1;n;n=-1", "1;n;n", "1;n;n=1,", "1;n;n=x", "1;n",
     "1;;=1", "1;n;n=1,=2", "1;n;n=1;", "1;n;n=1;n=2", "1;n;n=1;m=1", "1;n;n=1;n=1;n=1",
     "1;n;n=" + "1" * header.BYTES_MAX, b"\xff;n;n=1", "1;%ff;%ff=1", "1;n;n=\u0663"],
)  # fmt: skip
def test_an_invalid_header_is_a_failure_and_the_event_is_recorded(text: str | bytes) -> None:
    events = ListSink()
    tracer = Tracer("m", events)
    tracer.receive({header.NAME: text} if isinstance(text, str) else [(header.NAME, text)])
    assert [event["clock"] for event in events] == [{"m": 1}]
    assert sum(tracer.failures.values()) == 1


def test_receives_names_the_calls_within_which_a_message_was_sent() -> None:
    events = ListSink()
    one, other = Tracer("n1", events), Tracer("n2", events)

    @one.event(at="begin")
    def push(value: int) -> dict[str, str]:
        return replicate()

    @one.event(at="begin", type="spread", arguments=False)
    def replicate() -> dict[str, str]:
        return one.send("message")

    other.receive(push(7), "apply")
    other.receive(one.send("later"))
    assert [(event["type"], event.get("receives")) for event in events] == [
        ("push", None),
        ("spread", None),
        ("message", None),
        ("apply", ["n1@3", "n1@1", "n1@2"]),
        ("later", None),
        ("receive", ["n1@4"]),
    ]
    assert events[0]["data"] == {"value": 7, "arg_types": ["int"]}
    assert "arg_types" not in events[1]["data"]


def test_message_does_not_name_a_call_of_another_tracer_that_its_sender_does_not_know() -> None:
    """As in a simulation, where functions of several nodes call each other."""
    events = ListSink()
    one, other, third = (Tracer(node, events) for node in ("n1", "n2", "n3"))

    @one.event(at="begin")
    def push() -> None:
        third.receive(other.send("message"), "apply")
        other.receive(one.send("message"), "apply")
        third.receive(other.send("message"), "apply")

    push()
    assert [event["receives"] for event in events if event["type"] == "apply"] == [
        ["n2@1"],
        ["n1@2", "n1@1"],
        ["n2@3", "n1@1"],
    ]
    assert not third.failures


def test_joining_gathered_tasks_merges_their_clocks() -> None:
    events = ListSink()
    tracer = Tracer("n1", events, activity="task")

    async def work() -> None:
        tracer.record("work")

    async def program() -> None:
        tracer.record("begin")
        tasks = [asyncio.create_task(work()) for _ in range(2)]
        await asyncio.gather(*tasks)
        tracer.record("gathered")
        for task in tasks:
            tracer.joined(task)
        tracer.record("joined")

    asyncio.run(program())
    clocks = [event["clock"] for event in events if event["node"] == "n1"]
    assert clocks == [{"n1": 1}, {"n1": 2}, {"n1": 3, "n1/1": 1, "n1/2": 1}]


def test_task_started_within_a_call_sends_within_it() -> None:
    events = ListSink()
    one, other = Tracer("n1", events, activity="task"), Tracer("n2", events)
    sent: list[dict[str, str]] = []

    async def spread() -> None:
        sent.append(one.send("message"))

    @one.event(at="begin")
    async def push() -> asyncio.Task[None]:
        return asyncio.create_task(spread())

    async def program() -> None:
        await (await push())
        sent.append(one.send("message"))

    asyncio.run(program())
    for headers in sent:
        other.receive(headers)
    assert [event["receives"] for event in events if event["node"] == "n2"] == [
        ["n1/1@1", "n1@1"],
        ["n1@2"],
    ]


def test_attributes_may_have_any_name() -> None:
    events = ListSink()
    tracer = Tracer("n", events)
    names = {"type": 1, "headers": 2, "self": 3, "bytes_max": 4, "node": 5}
    tracer.receive(tracer.send("ask", **names), "asked", **names)
    tracer.record("done", **names)
    assert [event["data"] for event in events] == [names] * 3


def test_call_can_only_be_recorded_at_its_begin_or_end() -> None:
    with pytest.raises(SettingError, match="at must be begin or end, not 'middle'"):
        Tracer("n", ListSink()).event(at="middle")  # type: ignore[call-overload]


def test_headers_may_be_pairs_or_mapping_of_text_or_bytes_in_any_case() -> None:
    text = header.encoded("n", {"n": 4})
    events = ListSink()
    tracer = Tracer("m", events)
    given: list[Any] = [
        {"Ketal-Clock": text}, [("x", b"y"), ("ketal-clock", text.encode())],
        [(b"KETAL-CLOCK", text.encode())], text, text.encode(),
    ]  # fmt: skip
    for headers in given:
        tracer.receive(headers)
    assert [event["clock"]["n"] for event in events] == [4] * 5
    assert not tracer.failures


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.builds(Unprintable) | st.builds(object) | st.sets(st.integers()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)  # fmt: skip


@given(ANYTHING)
def test_any_value_becomes_a_readable_attribute(value: object) -> None:
    events = ListSink()
    tracer = Tracer("n", events)
    tracer.record("t", value=value)
    assert not tracer.failures
    ketal.Event(**events[0])


def test_enums_with_a_plain_value_become_that_value_as_in_an_event() -> None:
    class Colour(str, enum.Enum):  # noqa: UP042
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    values: dict[str, Any] = {
        "colour": Colour.RED, "level": Level.HIGH, "list": [Colour.RED], "map": {Colour.RED: 1},
    }  # fmt: skip
    events = ListSink()
    Tracer("n", events).record(Colour.RED, **values)
    (event,) = events
    assert (event["type"], str(event["data"])) == ("red", str({
        "colour": "red", "level": 3, "list": ["red"], "map": {"red": 1},
    }))  # fmt: skip
    assert ketal.Event(node="n", type="red", clock={"n": 1}, data=values).data == event["data"]


def test_numpy_scalars_become_plain_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    values = [numpy.int64(3), numpy.float32(0.5), numpy.float64("nan"), numpy.bool_(True)]
    assert plain(values) == [3, 0.5, "nan", True]
    assert [type(value) for value in plain(values)] == [int, float, str, bool]
    assert plain(numpy.longdouble(1)).endswith("longdouble('1.0')")


def test_large_values_are_truncated() -> None:
    assert len(plain("x" * 5_000)) == TEXT_MAX
    assert len(plain(list(range(5_000)))) == ITEMS_MAX
    deep: list[Any] = []
    deep.append(deep)
    assert len(str(plain(deep))) < 2_000


def test_values_that_contain_each_other_are_converted_in_bounded_work() -> None:
    """The `repr` of one person lists all ways from friend to friend."""

    class Name:
        def __repr__(self) -> str:
            return "A"

    people: list[dict[str, Any]] = [{"name": Name()} for _ in range(30)]
    for person in people:
        person["friends"] = [other for other in people if other is not person]
    with calls_at_most(30 * VALUES_MAX):
        recorded = plain(people[0])
    assert [friend["name"] for friend in recorded["friends"]] == ["A"] * 29
    assert recorded["friends"][0]["friends"][0].startswith("{'name': 'A', 'friends': [{'name': 'A'")


def test_values_beyond_the_limit_of_an_attribute_are_left_out() -> None:
    nested: Any = 1
    for _ in range(4):
        nested = [nested] * ITEMS_MAX
    with calls_at_most(30 * VALUES_MAX):
        recorded = plain(nested)
    assert sum(len(texts) for row in recorded for lists in row for texts in lists) < VALUES_MAX
    assert recorded[0][0] == nested[0][0]
    assert plain([[1] * ITEMS_MAX] * ITEMS_MAX) == [[1] * ITEMS_MAX] * ITEMS_MAX


def test_repr_may_call_traced_functions() -> None:
    """An event of the call has a value whose `repr` calls the function again, and so on."""
    sink = ListSink()
    tracer = Tracer("n", sink)

    class Node:
        @tracer.event
        def root(self) -> Node:
            return self

        def __repr__(self) -> str:
            return f"child of {self.root().__class__.__name__}"

    with calls_at_most(10_000):
        tracer.record("t", node=Node())
        tracer.record("t", node=Node())
    assert [event["data"].get("node", event["data"].get("result")) for event in sink] == [
        "<Node>", "child of Node", "<Node>", "child of Node"
    ]  # fmt: skip
    assert not tracer.failures


def test_a_proxy_without_an_object_is_recorded(tmp_path: Path) -> None:
    """As that of a request, of werkzeug, outside of a request."""

    class Proxy:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("outside of a request")

        @__class__.setter
        def __class__(self, value: Any) -> None: ...

    sink = ListSink()

    @Tracer("n", sink).event
    def work(request: Proxy) -> Proxy:
        return request

    work(Proxy())
    (event,) = sink
    assert event["data"] == {
        "request": "<Proxy>", "arg_types": ["Proxy"], "result": "<Proxy>", "result_type": "Proxy"
    }  # fmt: skip


def test_large_payload_is_truncated_without_being_formatted() -> None:
    payload = b"\0" * 10_000_000
    tracemalloc.start()
    try:
        assert (
            plain(payload) == plain(payload[:2_000]) == repr(payload[:2_000])[: TEXT_MAX - 1] + "…"
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_event_too_large_for_a_reader_is_truncated(tmp_path: Path) -> None:
    tracer = Tracer("n", tmp_path / "n.jsonl")
    documents = [dict.fromkeys("abcdefghijk", '"ü"' * 1_000) for _ in range(ITEMS_MAX)]
    tracer.record("index", documents=documents, number=7)
    tracer.record("index", documents=documents[:2])
    first, second = ketal.read_log(tmp_path / "n.jsonl")
    assert first.data["number"] == 7
    assert len(first.data["documents"]) == TEXT_MAX
    assert first.data["documents"].startswith('[{"a":"\\"ü\\"')
    assert second.data["documents"] == plain(documents[:2])
    assert not tracer.failures


def test_an_event_that_is_too_large_even_if_cut_is_counted(tmp_path: Path) -> None:
    """A reader of the log would refuse its line; a gap in the counters shows the loss."""
    tracer = Tracer("n", tmp_path / "n.jsonl")
    tracer.record("many", **{f"a{number}": "y" * 999 for number in range(2_000)})
    tracer.record("next")
    log = ketal.read_log(tmp_path / "n.jsonl")
    assert [str(event) for event in log] == ["n@2 next"]
    assert not log.rejected
    (reason,) = tracer.failures
    assert reason == "an event was not written: ValueError: the event has more than 900,000 bytes"


def test_an_untraced_thread_starts_a_line_with_an_empty_clock() -> None:
    events = ListSink()
    tracer = Tracer("n", events, activity="thread")
    tracer.record("before")
    thread = threading.Thread(target=tracer.record, args=("within",))
    thread.start()
    thread.join()
    assert events[1]["clock"] == {"n/1": 1}


@pytest.mark.parametrize("what", ["push", 5, Unprintable])
def test_only_functions_are_traced(what: Any) -> None:
    with pytest.raises(TypeError, match="the object to trace must be a function"):
        Tracer("n", ListSink()).event(what)
