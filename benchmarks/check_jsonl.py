"""Events per second of `ketal run` on JSON lines, beside plain decoding of the same file.

Run by hand: `python benchmarks/check_jsonl.py [events]`. Prints rates and their
ratios to msgspec's decoding of the same lines in the same run; quote the ratios.
"""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import ketal

CHECK = """
pattern Stack {{
    order {order};
    event Push = call(* Stack.push(..));
    event Pop = call(* Stack.pop(..));
    {steps}
    check {body};
}}
"""
PATTERNS = {
    "check, arrival": ("arrival", "", "(Push | Pop)*"),
    "check, CausalOrder": ("CausalOrder", "", "(Push | Pop)*"),
    "check, arrival, Causal": ("arrival", "B = Causal(Pop, A); A = Push;", "(A | B)*"),
}
TYPES = ("Stack.push", "Stack.pop", "Stack.peek", "Net.send")


def write(path: Path, count: int) -> None:
    """Write a log of four nodes that send each other messages."""
    rng = random.Random(1)
    nodes = [f"n{i}" for i in range(4)]
    clocks: dict[str, dict[str, int]] = {node: {} for node in nodes}
    encoder = msgspec.json.Encoder()
    with path.open("wb") as out:
        for number in range(count):
            node, other = rng.choice(nodes), rng.choice(nodes)
            clock = clocks[node]
            if other != node and rng.random() < 0.3:
                for name, counter in clocks[other].items():
                    clock[name] = max(counter, clock.get(name, 0))
            clock[node] = clock.get(node, 0) + 1
            row = {"node": node, "type": rng.choice(TYPES), "clock": clock}
            out.write(encoder.encode({**row, "data": {"value": number % 100}}) + b"\n")


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` takes."""
    gc.collect()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def decode(path: Path) -> None:
    """Decode each line, the baseline."""
    decoder = msgspec.json.Decoder()
    with path.open("rb") as lines:
        for line in lines:
            decoder.decode(line)


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        write(path, count)
        for repeat in range(3):
            base = seconds(lambda: decode(path))
            print(f"run {repeat + 1}: decode only {count / base:,.0f} events/s")
            read = seconds(lambda: [None for _ in ketal.read_log(path).records()])
            print(f"  read_log: {count / read:,.0f} events/s, {base / read:.2f} of decoding")
            for name, (order, steps, body) in PATTERNS.items():
                program = ketal.compile(CHECK.format(order=order, steps=steps, body=body))
                took = seconds(lambda: list(ketal.run(program, ketal.read_log(path))))  # noqa: B023
                print(f"  {name}: {count / took:,.0f} events/s, {base / took:.2f} of decoding")


if __name__ == "__main__":
    main()
