"""Files of events through crashes, full disks, restarts and forks."""

from __future__ import annotations

import copy
import gc
import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ketal
from ketal.errors import SettingError
from ketal.trace import JsonLines, KafkaSink, Tracer
from tests.logged import ketal_records
from tests.sampling import sample
from tests.trace.scripts import needs_fork, run_script
from tests.trace.test_exactness import ListSink


def _clocks(path: Path) -> dict[str, dict[str, int]]:
    """Return the clock of each event in a log, by the event's name."""
    return {str(event.dot): dict(event.clock) for event in ketal.read_log(path)}


def test_restart_is_a_new_incarnation(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    for number in (1, 2, 3):
        tracer = Tracer("n", path)
        tracer.record("a")
        tracer.record("b")
        assert tracer.node == ("n" if number == 1 else f"n#{number}")
        Tracer("other/1#", path, activity="thread").record("c")
    assert list(_clocks(path))[-1].startswith("other/1#")
    assert len(_clocks(path)) == 9


BEGUN = """
import sys
from ketal.trace import Tracer
tracer = Tracer("n", sys.argv[1])
print(tracer.node, flush=True)
for line in sys.stdin:
    tracer.record("t")
    print("recorded", flush=True)
"""


def test_processes_started_before_the_first_event_are_distinct_incarnations(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    words = [sys.executable, "-c", BEGUN, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    one, other = (subprocess.Popen(words, **pipes) for _ in range(2))  # type: ignore[call-overload]
    try:
        assert sorted(p.stdout.readline() for p in (one, other)) == ["n\n", "n#2\n"]
        here = Tracer("n", path)
        assert (here.node, Tracer("m", path).node) == ("n#3", "m")
        one.kill()
        one.wait()
        other.communicate("\n")
    finally:
        one.communicate()
    here.record("t")
    assert ketal.audit(ketal.read_log(path)).clean
    assert len(_clocks(path)) == 2


def test_tracers_that_share_a_sink_are_distinct_incarnations(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "n.jsonl")
    tracers = [Tracer("n", sink) for _ in range(3)]
    assert [tracer.node for tracer in tracers] == ["n", "n#2", "n#3"]
    for tracer in tracers:
        tracer.record("t")
    assert ketal.audit(ketal.read_log(tmp_path / "n.jsonl")).clean


SHARING = """
import os, sys
from ketal.trace import JsonLines, Tracer
sink = JsonLines(sys.argv[1])
named, naming = os.pipe()
go, going = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        tracer = Tracer("worker", sink)
        os.write(naming, b".")
        os.read(go, 1)
        tracer.record("t")
        os._exit(0)
for _ in range(3):
    os.read(named, 1)
os.write(going, b"...")
for _ in range(3):
    os.wait()
"""


@needs_fork
def test_children_that_share_a_sink_are_distinct_incarnations(tmp_path: Path) -> None:
    run_script(SHARING, tmp_path / "n.jsonl")
    assert sorted(_clocks(tmp_path / "n.jsonl")) == ["worker#2@1", "worker#3@1", "worker@1"]


def test_closed_sink_writes_to_no_file_that_the_program_opens_next(tmp_path: Path) -> None:
    """The system gives the next file the same descriptor."""
    sink = JsonLines(tmp_path / "n.jsonl")
    tracer = Tracer("n", sink)
    sink.close()
    with open(tmp_path / "other", "w+b") as other:
        tracer.record("t")
        sink.close()
        assert other.read() == b""
    assert list(tracer.failures) == ["an event was not written: OSError: the sink is closed"]


def test_sink_closed_during_a_write_writes_to_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another thread ran between two system calls of the write."""
    sink, path, lseek = JsonLines(tmp_path / "n.jsonl"), tmp_path / "other", os.lseek

    def seek(file: int, *place: int) -> int:
        end = lseek(file, *place)
        sink.close()
        opened.append(os.open(path, os.O_RDWR | os.O_CREAT))
        return end

    opened: list[int] = []
    monkeypatch.setattr(os, "lseek", seek)
    with pytest.raises(OSError, match="Bad file descriptor"):  # so that the event is not just lost
        sink.write({"node": "n", "type": "a", "clock": {"n": 1}})
    assert path.read_bytes() == b""
    for file in opened:
        os.close(file)


def test_program_that_closes_all_descriptors_keeps_its_files(tmp_path: Path) -> None:
    """A program that becomes a daemon does so; events that it records later are counted."""
    run_script(CLOSES_ALL, tmp_path)
    assert (tmp_path / "other").read_bytes() == b"data"
    assert list(_clocks(tmp_path / "n.jsonl")) == ["n@1"]


CLOSES_ALL = """
import os, sys
from ketal.trace import JsonLines, Tracer
folder = sys.argv[1]
sink = JsonLines(f"{folder}/n.jsonl")
tracer = Tracer("n", sink)
tracer.record("a")
os.closerange(3, 2_000)
others = [open(f"{folder}/other", "wb", buffering=0) for _ in range(3)]
tracer.record("b")
# A server may have many connections later.
others += [open(f"{folder}/other", "wb", buffering=0) for _ in range(600)]
tracer.record("c")
sink.close()
del sink, tracer._recorder.sink
others[-1].write(b"data")
for other in others:
    other.close()
assert tracer.failures == {
    "an event was not written: OSError: [Errno 9] Bad file descriptor": 1,
    "an event was not written: OSError: the sink is closed": 1,
}
"""


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda sink: pickle.loads(pickle.dumps(sink))])
def test_copy_of_a_sink_opens_the_file_again(tmp_path: Path, copied: Any) -> None:
    """With the number of its descriptor it would write to any file, such as one of a child."""
    sink = JsonLines(tmp_path / "n.jsonl")
    other = copied(sink)
    del sink
    gc.collect()
    with open(tmp_path / "other", "w+b") as next_file:
        Tracer("n", other).record("t")
        assert next_file.read() == b""
    assert list(_clocks(tmp_path / "n.jsonl")) == ["n@1"]


def test_program_may_change_its_folder_before_it_makes_a_tracer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = JsonLines("n.jsonl")
    monkeypatch.chdir("other")
    Tracer("n", sink).record("t")
    assert list(_clocks(tmp_path / "n.jsonl")) == ["n@1"]


def test_deleted_sink_closes_its_file(tmp_path: Path) -> None:
    opened = len(os.listdir("/dev/fd"))
    for _ in range(10):
        Tracer("n", tmp_path / "n.jsonl").record("t")
    assert len(os.listdir("/dev/fd")) == opened


def test_tracers_of_many_nodes_that_share_a_sink_open_no_further_files(tmp_path: Path) -> None:
    """As in a simulation of many processes."""
    sink = JsonLines(tmp_path / "n.jsonl")
    opened = len(os.listdir("/dev/fd"))
    tracers = [Tracer(f"n{number}", sink) for number in range(10)]
    assert len(os.listdir("/dev/fd")) == opened
    assert [tracer.node for tracer in tracers] == [f"n{number}" for number in range(10)]


def test_a_restart_may_be_numbered_if_the_sink_cannot_number_it() -> None:
    """A peer does not mistake events of the second run for those of the first."""
    events = ListSink()
    peer = Tracer("peer", events)
    for number in (1, 2):
        tracer = Tracer("n", events, incarnation=number)
        tracer.record("begun")
        peer.receive(tracer.send())
    assert events[-1]["clock"] == {"n": 2, "n#2": 2, "peer": 2}
    for wrong in (0, True, 1.5):
        with pytest.raises(SettingError, match="incarnation must be a positive integer"):
            Tracer("n", events, incarnation=wrong)  # type: ignore[arg-type]


def test_runs_in_rotated_logs_are_counted(tmp_path: Path) -> None:
    """Of several files, the newest one that has events of the node, compressed or not."""
    log = tmp_path / "n[1].jsonl"

    def run_of(node: str) -> str:
        tracer = Tracer(node, log)
        tracer.record("t")
        return tracer.node

    assert run_of("n") == "n"
    log.rename(tmp_path / "n[1].jsonl-20261128")
    assert [run_of("n"), run_of("m")] == ["n#2", "m"]
    with gzip.open(tmp_path / "n[1].jsonl.1.gz", "wb") as rotated:
        rotated.write(log.read_bytes())
    log.unlink()
    os.utime(tmp_path / "n[1].jsonl-20261128", (1, 1))
    assert [run_of("n"), run_of("m"), run_of("n")] == ["n#3", "m#2", "n#4"]
    log.rename(tmp_path / "n[1].jsonl.1")
    other = tmp_path / "n1.jsonl.1"
    other.write_text('{"node":"n#70","type":"t","clock":{"n#70":1}}\n')
    assert [run_of("n"), run_of("x")] == ["n#5", "x"]


def test_a_rotated_log_that_cannot_be_read_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "n.jsonl.1.gz").write_bytes(gzip.compress(b"")[:-3])
    (tmp_path / "n.jsonl.d").mkdir()
    (tmp_path / "n.jsonl.2").write_text('{"node":"n#6","type":"t","clock":{"n#6":1}}\n')
    os.utime(tmp_path / "n.jsonl.2", (1, 1))
    assert Tracer("n", tmp_path / "n.jsonl").node == "n#7"
    texts = sorted(record.getMessage() for record in ketal_records(caplog))
    assert [text.partition(".jsonl")[2].partition(":")[0] for text in texts] == [".1.gz", ".d"]


def test_incarnation_is_found_among_activities_and_other_nodes(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text(
        '{"node":"n/1#4","type":"n#9","clock":{}}\n{"node":"m#7","type":"t"}\n{"node":"n#5x"}\n'
        '{"node":"n.#8","type":"t"}\n{"node":"no#6","type":"t"}\n{"node":"n#1'
    )
    sink = JsonLines(path)
    assert sink.incarnation("n") == 5
    assert sink.incarnation("m") == 8
    assert sink.incarnation("x") == 1
    assert sink.incarnation("n.") == 9


KILLED = """
import sys
from ketal.trace import Tracer
tracer = Tracer("n", sys.argv[1])
while True:
    tracer.record("t", text="x" * 200)
    sys.stdout.write(".")
    sys.stdout.flush()
"""


def test_kill_9_loses_no_recorded_event(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    recorded = []
    for _ in range(3):
        words = [sys.executable, "-c", KILLED, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            shown = running.stdout.read(500)
            running.send_signal(signal.SIGKILL)
            recorded.append(len(shown + running.stdout.read()))
    # A line may be truncated: its event was not recorded.
    log = [item for item in ketal.read_log(path) if isinstance(item, ketal.Event)]
    events = Counter(event.node for event in log)
    # A run may be killed after it recorded its last event but before it prints that.
    more = [events[node] - count for node, count in zip(("n", "n#2", "n#3"), recorded, strict=True)]
    assert set(more) <= {0, 1}, (events, recorded)


FULL = """
import resource, sys
from ketal.trace import Tracer
tracer = Tracer("n", sys.argv[1])
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
for _ in range(20):
    tracer.record("t")
print(sum(tracer.failures.values()))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
tracer.record("again")
"""


def test_full_disk_is_counted_and_the_next_event_starts_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    lost = int(run_script(FULL, path).stdout)
    assert 0 < lost < 20
    assert len(path.read_bytes().splitlines()) == 20 - lost + 1 + 1  # one was cut
    program = ketal.compile('pattern P { event A = type == "again"; find any A; }')
    result = ketal.run(program, ketal.read_log(path))
    assert [verdict.kind for verdict in result].count("match") == 1
    events: Any = result.summary["events"]
    assert (events["accepted"], events["rejected"]) == (20 - lost + 1, 1)


def test_a_name_that_no_file_can_have_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"cannot write .*: the name of a file cannot contain"):
        Tracer("n", "a\0b")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_device_is_counted() -> None:
    tracer = Tracer("n", "/dev/full")
    tracer.record("t")
    (reason,) = tracer.failures
    assert "No space left" in reason


def test_a_file_that_ends_with_a_truncated_line_is_continued_on_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text('{"node":"n","type":"cu')
    Tracer("n", path).record("t")
    first, second = path.read_text().splitlines()
    assert first == '{"node":"n","type":"cu'
    assert json.loads(second)["node"] == "n#2"


def test_line_cut_by_a_killed_process_is_ended_by_the_next_event(
    tmp_path: Path,
) -> None:
    """The line may be truncated anywhere: another process that shares the file continues."""
    path = tmp_path / "n.jsonl"
    tracer = Tracer("n", path)
    line = '{"node":"m","type":"t","clock":{"m":1}}'
    for cut in range(1, len(line)):
        tracer.record("t")
        with open(path, "a") as file:
            file.write(line[:cut])
    tracer.record("t")
    items = list(ketal.read_log(path).records())
    assert [str(item.dot) for _, item, _, _ in items if isinstance(item, ketal.Event)] == [
        f"n@{number}" for number in range(1, len(line) + 1)
    ]
    assert len(items) == 2 * len(line) - 1


def test_event_written_beside_another_process_is_on_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process writes between the sink's read and write, and is killed at any byte."""
    path = tmp_path / "n.jsonl"
    tracer = Tracer("n", path)
    whole = b'{"node":"m","type":"t","clock":{"m":1}}\n'
    cuts = iter(range(len(whole) + 1))
    write = os.write

    def beside(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        with open(path, "ab") as file:
            file.write(whole * 3 + whole[: next(cuts)])
        return write(descriptor, data)

    for _ in range(len(whole) + 1):
        monkeypatch.setattr(os, "write", beside)
        tracer.record("t")
    assert not tracer.failures
    items = [item for _, item, _, _ in ketal.read_log(path).records()]
    own = [str(item.dot) for item in items if isinstance(item, ketal.Event) and item.node == "n"]
    assert own == [f"n@{number}" for number in range(1, len(whole) + 2)]
    assert sum(not isinstance(item, ketal.Event) for item in items) == len(whole) - 1


FORKS = """
import multiprocessing, sys
from ketal.trace import TracedQueue, Tracer
tracer = Tracer("n", sys.argv[1], activity=sys.argv[2])
forking = multiprocessing.get_context("fork")
queue = TracedQueue(forking.Queue(), tracer, "q")
def child():
    tracer.record("child")
    grandchild = forking.Process(target=tracer.record, args=("grandchild",))
    grandchild.start()
    grandchild.join(30)
    queue.put("done")
tracer.record("before")
children = [forking.Process(target=child) for _ in range(2)]
for one in children:
    one.start()
    tracer.record("started")
for one in children:
    queue.get(timeout=30)
    one.join(30)
assert not tracer.failures
"""


@needs_fork
@pytest.mark.parametrize("activity", ["process", "thread"])
def test_forked_child_is_a_distinct_process(tmp_path: Path, activity: str) -> None:
    path = tmp_path / "n.jsonl"
    run_script(FORKS, path, activity)
    events = {str(event.dot): event for event in ketal.read_log(path)}
    clocks = {name: dict(event.clock) for name, event in events.items()}
    assert clocks["n/f1@1"] == {"n": 1, "n/f1": 1}
    assert clocks["n/f2@1"] == {"n": 2, "n/f2": 1}
    assert clocks["n/f1/f1@1"] == {"n": 1, "n/f1": 1, "n/f1/f1": 1}
    assert clocks["n@3"] == {"n": 3}
    assert sum(event.type == "get" for event in events.values()) == 2
    assert len(events) == 1 + 2 + 2 + 2 + 2 + 2
    last = clocks["n@5"]
    assert (last["n/f1"], last["n/f2"]) == (2, 2)


FORKING_THREADS = """
import os, signal, sys, threading
from ketal.trace import Tracer
tracers = [Tracer(f"n{k}", f"{sys.argv[1]}.{k}", activity=sys.argv[2]) for k in range(3)]
signal.alarm(100)

def work():
    for _ in range(20):
        for tracer in tracers:
            tracer.record("before")
        child = os.fork()
        if not child:
            signal.alarm(50)
            for tracer in tracers:
                tracer.record("child")
            os._exit(sum(tracer.failures.total() for tracer in tracers))
        for tracer in tracers:
            tracer.record("after")
        assert os.waitpid(child, 0)[1] == 0

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not any(tracer.failures for tracer in tracers)
"""


@needs_fork
@pytest.mark.parametrize("activity", ["process", "thread"])
def test_several_threads_can_fork_at_the_same_time(tmp_path: Path, activity: str) -> None:
    path = tmp_path / "log"
    assert run_script(FORKING_THREADS, path, activity).stderr == ""
    events = [str(one) for one in ketal.read_log(*sorted(tmp_path.glob("log.*")))]
    assert len(events) == len(set(events)) == 3 * 4 * 20 * 3


FORK_DURING_CREATION = """
import os, sys, threading
from ketal.trace import Tracer
from ketal.trace.feeding import LockedMonitor

sys.setswitchinterval(1e-6)
tracers, ended = [], threading.Event()

def create():
    while not ended.is_set():
        tracers.append(Tracer("n"))
        del tracers[:-200]

thread = threading.Thread(target=create)
thread.start()
for _ in range(int(sys.argv[1])):
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
ended.set()
thread.join()
free = []
other = threading.Thread(target=lambda: free.append(LockedMonitor.lock.acquire(timeout=0)))
other.start()
other.join()
assert free == [True], "the lock of monitors is held for ever"
"""


@needs_fork
def test_process_can_fork_while_another_thread_makes_a_tracer() -> None:
    assert run_script(FORK_DURING_CREATION, sample(80, 200)).stderr == ""


def test_events_of_all_runs_of_a_node_have_the_same_kafka_key() -> None:
    sent = []

    class Producer:
        def send(self, topic: str, *, key: bytes, value: bytes) -> None:
            sent.append((topic, key, json.loads(value)["type"]))

    for number in (1, 2):
        Tracer("n", KafkaSink(Producer(), "events"), incarnation=number).record("t")
    assert sent == [("events", b"n", "t")] * 2


def test_events_that_a_producer_cannot_deliver_are_counted() -> None:
    """Once each, by a later event if the producer gives up later."""
    errbacks: list[Any] = []

    class Sent:
        def add_errback(self, errback: Any) -> None:
            errbacks.append(errback)

    class Producer:
        def send(self, topic: str, **message: bytes) -> Sent:
            return Sent()

    tracer = Tracer("n", KafkaSink(Producer(), "events"), incarnation=1)
    for _ in range(4):
        tracer.record("t")
    assert not tracer.failures
    for errback in errbacks[:2]:
        errback(OSError("no broker"))
    for _ in range(3):
        tracer.record("t")
    assert dict(tracer.failures) == {"an event was not written: OSError: no broker": 2}


@needs_fork
def test_events_that_a_child_passes_to_its_parents_producer_are_counted() -> None:
    """The producer's thread, which sends them, does not exist in the child of a fork."""
    script = """
import os
from ketal.trace import KafkaSink, Tracer
class Producer:
    def send(self, topic, **message):
        print(topic, message["key"], flush=True)
tracer = Tracer("n", KafkaSink(Producer(), "events"), incarnation=1)
child = os.fork()
if child:
    os.waitpid(child, 0)
tracer.record("t")
print(tracer.node, tracer.failures.total(), flush=True)
"""
    assert run_script(script).stdout.splitlines() == ["n/f1 1", "events b'n'", "n 0"]


def test_event_time_is_the_time_of_recording(tmp_path: Path) -> None:
    before = time.time()
    Tracer("n", tmp_path / "n.jsonl").record("t")
    (event,) = ketal.read_log(tmp_path / "n.jsonl")
    assert event.time is not None
    assert before - 0.001 <= float(event.time) <= time.time() + 0.001
