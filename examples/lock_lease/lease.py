"""Two workers add one to a number in a file, each while it holds the lease of a server.

Three real processes, which exchange messages and stamp what they do with vector clocks. The
one rule: `Stamped` is all that a program needs for that. A process counts its own events, sends
its clock along with every message, and takes over what the clock of a message knows.

    python lease.py in_time.jsonl 10 0      a lease ends after 10 seconds, work takes none
    python lease.py too_late.jsonl 0.2 2    a lease ends after 0.2 seconds, work takes 2
"""

from __future__ import annotations

import json
import sys
import time
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path

WORKERS = ("alice", "bob")


class Stamped:
    """A process: its name, its vector clock, and the log that it writes."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.clock: dict[str, int] = {}

    def event(self, type: str, **data: object) -> None:
        """Count an event, and log it: one line of JSON."""
        self.clock[self.name] = self.clock.get(self.name, 0) + 1
        line = {"node": self.name, "type": type, "clock": self.clock, "time": time.time()}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"data": data}) + "\n")

    def send(self, to: Connection, message: str, **data: object) -> None:
        """Log that a message is sent, and send it with the clock."""
        self.event(f"send {message}", **data)
        to.send((message, self.clock))

    def receive(self, source: Connection, **data: object) -> None:
        """Wait for a message; take over what its clock knows, and log that it came."""
        message, clock = source.recv()
        for node, count in clock.items():
            self.clock[node] = max(self.clock.get(node, 0), count)
        self.event(f"receive {message}", **data)


def server(me: Stamped, workers: dict[str, Connection], lease_s: float) -> None:
    """Grant the lease to one worker after the other, until it is given back or ends."""
    for name, worker in workers.items():
        me.receive(worker, worker=name)
    for name, worker in workers.items():
        me.send(worker, "grant", worker=name)
        if worker.poll(lease_s):
            me.receive(worker, worker=name)
        else:
            me.event("expire", worker=name)


def worker(me: Stamped, server: Connection, number: Path, work_s: float) -> None:
    """Add one to the number in the file, as if the lease held until the work is done."""
    me.send(server, "ask")
    me.receive(server)
    value = int(number.read_text())
    me.event("read", value=value)
    time.sleep(work_s)
    number.write_text(str(value + 1))
    me.event("write", value=value + 1)
    me.send(server, "release")


def main(log: Path, lease_s: float, work_s: float) -> None:
    """Run the three processes; say what is in the file at the end."""
    log.unlink(missing_ok=True)
    number = log.with_suffix(".number")
    number.write_text("0")
    pipes = {name: Pipe() for name in WORKERS}
    started = [
        Process(target=worker, args=(Stamped(name, log), theirs, number, work_s))
        for name, (_, theirs) in pipes.items()
    ]
    for process in started:
        process.start()
    server(Stamped("server", log), {name: ours for name, (ours, _) in pipes.items()}, lease_s)
    for process in started:
        process.join()
    print(f"{len(WORKERS)} workers added one each, and the number is {number.read_text()}")
    number.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
