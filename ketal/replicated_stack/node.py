"""The protocol of the replicated stack, as each process runs it.

Each push and pop on a node is sent as an operation to the nodes that are on, and applied there once
all operations that it depends on are applied. A node that is off takes no part in the messaging. To
be turned on it requests the state from node n1, which is always on. Each period of being on is a
**session**; an operation is addressed to a session, and ignored in any other. Nodes that are on
compare their operations, when one is turned on and at the end, and send the missing ones.

`Bug` has the bugs that can be enabled. The one rule: the protocol never reads clocks.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ketal.replicated_stack.transport import Message, Transport
from ketal.trace import Tracer

FIRST = "n1"
"""The node that is always on, and serves the state to others."""


class Bug(enum.Enum):
    """A bug in the protocol."""

    NONE = "none"
    EARLY_DELIVERY = "early-delivery"
    """An operation is applied before those that it depends on."""
    APPLIES_WHEN_OFF = "applies-when-off"
    """A node that is off continues to apply operations."""
    OLD_SESSION = "old-session"
    """An operation that was addressed to an earlier session is applied in a later one."""
    EARLY_ACKNOWLEDGEMENT = "early-acknowledgement"
    """An operation is acknowledged before it is applied."""
    LOST_UPDATE = "lost-update"
    """Of two concurrent pushes, the one applied later replaces the other."""
    STALE_COPY = "stale-copy"
    """A node that is turned on is served an outdated copy of the stack."""


class StackNode:
    """One node of the replicated stack; `folder` is for its history, which the checker reads."""

    def __init__(self, tracer: Tracer, bug: Bug, folder: Path) -> None:
        self.name = tracer.node
        self.transport: Transport
        self._node = self.name.partition("#")[0]
        self._tracer, self._bug = tracer, bug
        self._history = (folder / f"{self.name}.history").open("a", buffering=1)
        self.is_on = False
        self._session = ""
        self._sessions = self._operations_made = 0
        self._view: dict[str, str] = {}
        self._operations: dict[str, Message] = {}
        self._elements: dict[str, tuple[int, Any]] = {}
        self._waiting: list[Message] = []
        self._needed: set[str] = set()
        self._asked = False
        self._copy: tuple[dict[str, Message], dict[str, tuple[int, Any]]] | None = None
        call: Callable[..., Any] = tracer.event
        self.on = call(self._on, type="ReplicatedStack.on", at="begin", arguments=False)
        self.off = call(self._off, type="ReplicatedStack.off", at="begin")
        self._push = call(self._operate, type="ReplicatedStack.push", at="begin")
        self._pop = call(self._operate, type="ReplicatedStack.pop", at="begin")
        self.top = call(self._top, type="ReplicatedStack.top")

    def _write_history(self, action: str, **more: Any) -> None:
        """Append an action to the node's history, for the checker; it contains no clock."""
        self._history.write(json.dumps({"what": action, **more}) + "\n")

    # --- calls of a program ---

    def push(self, value: int) -> None:
        """Push a value on the stack of this node and of all nodes that are on."""
        self._push(self._new_operation_id(), "push", value, self._session)

    def pop(self) -> None:
        """Pop the top of the stack of this node and of all nodes that are on."""
        if self._elements:
            self._pop(self._new_operation_id(), "pop", self._top_operation(), self._session)

    def _top(self) -> Any:
        return self._elements[self._top_operation()][1] if self._elements else None

    def turn_on(self) -> None:
        """Turn the node on: the first node at once, others when they receive the state."""
        if self._node == FIRST:
            self.on({}, {}, {})
        elif not self._asked:
            self._asked = True
            self._send(FIRST, "ask")

    def turn_off(self) -> None:
        """Turn the node off, and notify the others."""
        view = list(self._view)
        self.off()
        for to in view:
            self._send(to, "bye", session=self._session)

    # --- the protocol ---

    def _new_operation_id(self) -> str:
        self._operations_made += 1
        return f"{self.name}:{self._operations_made}"

    def _top_operation(self) -> str:
        return max(self._elements, key=lambda op: (self._elements[op][0], op))

    def _on(
        self,
        operations: dict[str, Message],
        elements: dict[str, tuple[int, Any]],
        view: dict[str, str],
    ) -> None:
        self._sessions += 1
        self._session = f"{self.name}/{self._sessions}"
        self.is_on, self._asked = True, False
        self._operations, self._elements, self._view = operations, elements, view
        self._view.pop(self._node, None)
        self._waiting, self._needed = [], set()
        self._write_history(
            "on", session=self._session, operations=[*operations], elements=[*elements]
        )
        for op, operation in operations.items():
            data = {"kind": operation["kind"], "session": self._session, "by": "state"}
            self._tracer.record("apply", op=op, **data)
        self.compare()

    def _off(self) -> None:
        self.is_on = False
        self._view, self._waiting = {}, []
        self._write_history("off")

    def _operate(self, op: str, kind: str, value: Any, session: str) -> None:
        height = 1 + max((o["height"] for o in self._operations.values()), default=0)
        operation = {
            "op": op, "kind": kind, "value": value, "height": height,
            "after": [*self._operations],
        }  # fmt: skip
        self._apply(operation, "call")
        for to, addressed in self._view.items():
            self._send(to, "operation", operation=operation, session=addressed)

    def compare(self) -> None:
        """Send the list of operations to all nodes that are on; they send missing ones."""
        if self.is_on:
            for other in self._view:
                self._send(other, "compare", session=self._session, has=[*self._operations])

    def _send(self, to: str, type: str, **content: Any) -> None:
        shown = {"op": content["op"]} if "op" in content else {}
        headers = self._tracer.send(type, to=to, **shown)
        self.transport.send(to, {"type": type, "headers": headers, **content})

    def handle(self, sender: str, message: Message) -> None:
        """Handle a message, unless the node is off and the protocol ignores it."""
        type = message["type"]
        if type == "operation":
            self._handle_operation(sender, message)
        elif type == "state" and self._asked:
            self._receive(message)
            elements = {op: (height, value) for op, (height, value) in message["elements"].items()}
            self.on(message["operations"], elements, message["view"])
        elif type != "state" and self.is_on:
            self._receive(message)
            getattr(self, f"_handle_{type}")(sender, message)

    def _receive(self, message: Message) -> None:
        self._tracer.receive(message["headers"], f"{message['type']} received")

    def _handle_ask(self, sender: str, message: Message) -> None:
        operations, elements = self._operations, self._elements
        if self._bug is Bug.STALE_COPY:
            self._copy = self._copy or (dict(operations), dict(elements))
            operations, elements = self._copy
        view = {**self._view, self._node: self._session}
        self._write_history("serve", operations=[*operations], elements=[*elements])
        self._tracer.record("serve", to=sender, operations=len(operations))
        self._send(sender, "state", operations=operations, elements=elements, view=view)

    def _handle_compare(self, sender: str, message: Message) -> None:
        self._view[sender] = message["session"]
        if self._bug is Bug.STALE_COPY:
            return  # The sender is assumed to have the state that it was served.
        missing = [o for op, o in self._operations.items() if op not in message["has"]]
        if missing:
            self._send(sender, "missing", session=message["session"], operations=missing)

    def _handle_missing(self, sender: str, message: Message) -> None:
        for operation in message["operations"] if message["session"] == self._session else ():
            if operation["op"] not in self._operations:
                self._apply(operation, "comparison")
        self._apply_waiting()

    def _handle_bye(self, sender: str, message: Message) -> None:
        if self._view.get(sender) == message["session"]:
            del self._view[sender]

    def _handle_acknowledge(self, sender: str, message: Message) -> None:
        self._write_history("acknowledged", op=message["op"])

    # --- operations ---

    def _handle_operation(self, sender: str, message: Message) -> None:
        operation = message["operation"]
        if not self.is_on and self._bug is not Bug.APPLIES_WHEN_OFF:
            return
        other_session = self.is_on and message["session"] != self._session
        if other_session and self._bug is not Bug.OLD_SESSION:
            return
        if self._bug is Bug.EARLY_ACKNOWLEDGEMENT:
            self._acknowledge(sender, operation)
        self._waiting.append({**message, "sender": sender})
        self._apply_waiting()

    def _acknowledge(self, sender: str, operation: Message) -> None:
        self._write_history("acknowledge", op=operation["op"])
        self._send(sender, "acknowledge", op=operation["op"])

    def _ready(self, operation: Message) -> bool:
        return self._bug is Bug.EARLY_DELIVERY or self._operations.keys() >= {*operation["after"]}

    def _apply_waiting(self) -> None:
        """Apply the waiting operations whose dependencies are all applied."""
        again = True
        while again:
            again = False
            for message in [m for m in self._waiting if self._ready(m["operation"])]:
                self._waiting.remove(message)
                operation = message["operation"]
                if operation["op"] not in self._operations:
                    self._apply(operation, "message", message)
                    again = True
                if self._bug is not Bug.EARLY_ACKNOWLEDGEMENT:
                    self._acknowledge(message["sender"], operation)

    def _apply(self, operation: Message, by: str, message: Message | None = None) -> None:
        op, before = operation["op"], len(self._elements)
        self._operations[op] = operation
        if operation["kind"] == "pop":
            self._elements.pop(operation["value"], None)
        else:
            if self._bug is Bug.LOST_UPDATE and by == "message" and self._elements:
                last = self._top_operation()
                if last not in operation["after"]:
                    del self._elements[last]
            self._elements[op] = operation["height"], operation["value"]
        data = {
            "op": op, "kind": operation["kind"], "before": before, "size": len(self._elements),
            "operations": len(self._operations), "by": by,
            "session": self._session if self.is_on else None,
            "addressed": None if message is None else message["session"],
        }  # fmt: skip
        if message is None:
            self._tracer.record("apply", **data)
        else:
            for needed in operation["after"]:
                if needed not in self._needed and self.is_on:
                    self._needed.add(needed)
                    self._tracer.record("needs", op=needed, session=self._session, by=op)
            self._tracer.receive(message["headers"], "apply", **data)
        self._write_history(
            "apply", operation=operation, by=by, elements=[*self._elements],
            session=None if message is None else message["session"],
        )  # fmt: skip

    def end(self) -> None:
        """Write the final state to the history."""
        self._write_history(
            "end", on=self.is_on, operations=[*self._operations], elements=self._elements
        )
        self._history.close()

    @property
    def status(self) -> tuple[bool, list[str]]:
        """Whether the node is on, and which operations it has."""
        return self.is_on, sorted(self._operations)
