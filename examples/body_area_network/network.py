"""A body area network: two sensors, a hub, a phone and a server, each a process of its own.

The sensors measure, the hub relays what they send by radio, the phone raises an alarm when the
pulse and the oxygen are low, and the server keeps the alarms. Each process has a `Tracer`, and the
links between them are queues that carry the clocks.

    python network.py right      readings may come late; the phone puts them in order
    python network.py stale      the fault: the phone takes each reading for the newest

The one rule: the network is the same in both; only the phone differs.
"""

from __future__ import annotations

import sys
from multiprocessing import Process, Queue
from typing import Any

from ketal.trace import TracedQueue, Tracer

PULSE = (72, 41, 70, 45)
OXYGEN = (97, 95, 93, 84)
LOW = {"pulse": 50, "oxygen": 90}


def sensor(kind: str, values: tuple[int, ...], radio: Any) -> None:
    """Measure, and send each reading with its number."""
    tracer = Tracer(kind, f"{kind}.jsonl")
    link = TracedQueue(radio, tracer, "radio")
    for number, value in enumerate(values):
        tracer.record("measure", kind=kind, number=number, value=value)
        link.put((kind, number, value))


def hub(pulse: Any, oxygen: Any, phone: Any) -> None:
    """Relay the readings; the pulse's second one, sent again by the radio, comes last."""
    tracer = Tracer("hub", "hub.jsonl")
    links = [TracedQueue(link, tracer, "radio") for link in (pulse, oxygen)]
    readings = [link.get() for _ in PULSE for link in links]
    late = readings.pop(2)
    to_phone = TracedQueue(phone, tracer, "bluetooth")
    for reading in (*readings, late):
        to_phone.put(reading)
    to_phone.put(None)


def phone(hub: Any, server: Any, stale: bool) -> None:
    """Raise an alarm where both readings are low."""
    tracer = Tracer("phone", "phone.jsonl")
    from_hub = TracedQueue(hub, tracer, "bluetooth")
    to_server = TracedQueue(server, tracer, "internet")
    newest: dict[str, tuple[int, int]] = {}
    while (reading := from_hub.get()) is not None:
        kind, number, value = reading
        if not stale and kind in newest and number < newest[kind][0]:
            tracer.record("outdated", kind=kind, number=number)
            continue
        newest[kind] = number, value
        if all(kind in newest and newest[kind][1] < low for kind, low in LOW.items()):
            numbers = {kind: number for kind, (number, _) in newest.items()}
            tracer.record("alarm", **numbers)
            to_server.put(numbers)
    to_server.put(None)


def server(phone: Any) -> None:
    """Keep the alarms."""
    tracer = Tracer("server", "server.jsonl")
    link = TracedQueue(phone, tracer, "internet")
    while (alarm := link.get()) is not None:
        tracer.record("notify", **alarm)


def main(stale: bool) -> None:
    """Run the network."""
    queues: list[Queue[Any]] = [Queue() for _ in range(4)]
    pulse, oxygen, bluetooth, internet = queues
    processes = [
        Process(target=sensor, args=("pulse", PULSE, pulse)),
        Process(target=sensor, args=("oxygen", OXYGEN, oxygen)),
        Process(target=hub, args=(pulse, oxygen, bluetooth)),
        Process(target=phone, args=(bluetooth, internet, stale)),
        Process(target=server, args=(internet,)),
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main(sys.argv[1] == "stale")
