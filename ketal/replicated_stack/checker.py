"""Finds the faults of a run from the histories that the nodes write, without any clock.

Each line of a history is an action of a node, in order: an operation that it applied, with the
operations that this depends on; being turned on, with its initial operations and elements; its
state at the end. The stack is simple enough to be replayed from that.

The one rule: the patterns are compared with `faults_of`, which is independent of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ketal.replicated_stack.node import Bug

History = list[dict[str, Any]]


def histories(folder: Path) -> dict[str, History]:
    """Return the histories of a run by process name."""
    return {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*.history"))
    }


def faults_of(folder: Path) -> dict[Bug, list[str]]:
    """Return the faults of a run as sentences, by the bug that each shows."""
    faults: dict[Bug, list[str]] = {}
    for name, history in histories(folder).items():
        for bug, sentence in _faults(history):
            faults.setdefault(bug, []).append(f"{name}: {sentence}")
    return faults


def _faults(history: History) -> Iterator[tuple[Bug, str]]:
    on, session = False, None
    applied: set[str] = set()
    elements: set[str] = set()
    operations: dict[str, dict[str, Any]] = {}
    for line in history:
        match line["what"]:
            case "on":
                on, session = True, line["session"]
                applied, elements = set(line["operations"]), set(line["elements"])
            case "off":
                on = False
            case "acknowledge" if line["op"] not in applied:
                yield Bug.EARLY_ACKNOWLEDGEMENT, f"acknowledged {line['op']} without applying it"
            case "serve" if (len(line["operations"]), set(line["elements"])) != (
                len(applied),
                elements,
            ):
                yield (
                    Bug.STALE_COPY,
                    f"served {len(line['operations'])} of {len(applied)} operations",
                )
            case "apply":
                operation = line["operation"]
                op = operation["op"]
                operations[op] = operation
                if line["by"] == "message" and not on:
                    yield Bug.APPLIES_WHEN_OFF, f"applied {op} while off"
                if line["by"] == "message" and on and line["session"] != session:
                    yield Bug.OLD_SESSION, f"applied {op} of session {line['session']}"
                if not applied >= set(operation["after"]):
                    yield Bug.EARLY_DELIVERY, f"applied {op} before an operation that it depends on"
                applied.add(op)
                if operation["kind"] == "push":
                    elements.add(op)
                else:
                    elements.discard(operation["value"])
                if elements != set(line["elements"]):
                    yield Bug.LOST_UPDATE, f"lost {', '.join(elements - set(line['elements']))}"
                    elements = set(line["elements"])
