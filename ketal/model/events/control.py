"""Control events: events about the execution that are not part of it.

The one rule: a control event without a field that its kind needs is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ketal.errors import EventError
from ketal.model import attributes
from ketal.model.events.event_time import seconds

_force = msgspec.structs.force_setattr
CONTROL_PREFIX = "ketal."
CONTROL_KINDS = ("join", "leave", "view", "watermark", "end")
_ABSENT: tuple[str, ...] = ("",)
"""The value of absent members; no node has an empty name."""


class Control(msgspec.Struct, frozen=True, eq=True, forbid_unknown_fields=True):
    """A control event: it is about the execution and not part of it.

    In a log its type is `ketal.` followed by the kind; it needs no clock.

    Parameters
    ----------
    kind : str
        One of `join`, `leave`, `view`, `watermark`, `end`.
    node : str or None
        The node that joins or leaves; for a view the node that announces it, if known.
    members : sequence of str
        The nodes of a view, required there; empty for a view without members.
    time : float, int, str, datetime or None
        The watermark.

    Raises
    ------
    EventError
        If the kind is unknown, or a field that the kind needs is missing or invalid.

    Examples
    --------
    >>> import ketal
    >>> left = ketal.Control("leave", node="n3")
    >>> view = ketal.Control("view", members=["n1", "n2"])
    >>> ketal.Control("watermark", time="2024-05-01T12:00:00Z").time
    1714564800.0
    >>> program = ketal.compile('pattern P { event E = type == "e"; check E*; }')
    >>> ketal.Monitor(program).feed_many([left, view, ketal.Control("end")])
    []
    """

    kind: str
    node: str | None = None
    members: tuple[str, ...] = _ABSENT
    time: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in CONTROL_KINDS:
            known = ", ".join(CONTROL_PREFIX + kind for kind in CONTROL_KINDS)
            raise EventError(
                f"{CONTROL_PREFIX}{self.kind} is not a control event; choose from {known}"
            )
        if self.node is not None:
            _force(self, "node", _node_name(self.node, f"the node of {CONTROL_PREFIX}{self.kind}"))
        elif self.kind in ("join", "leave"):
            raise EventError(f"{CONTROL_PREFIX}{self.kind} has no node")
        if self.members is not _ABSENT:
            _force(self, "members", self._member_names())
        elif self.kind == "view":
            raise EventError(f"{CONTROL_PREFIX}view has no members; list the nodes that take part")
        else:
            _force(self, "members", ())
        if self.time is not None:
            _force(self, "time", seconds(self.time))
        elif self.kind == "watermark":
            raise EventError(f"{CONTROL_PREFIX}watermark has no time")

    def _member_names(self) -> tuple[str, ...]:
        members: object = self.members
        if isinstance(members, str) or not isinstance(members, Sequence):
            raise EventError(f"the members of {CONTROL_PREFIX}{self.kind} must be a list of nodes")
        label = f"a member of {CONTROL_PREFIX}{self.kind}"
        return tuple(_node_name(member, label) for member in members)


def _node_name(node: object, label: str) -> str:
    name = attributes.name_of(node, label)
    if not name:
        raise EventError(f"{label} is empty; name the node, for example `n1`")
    return attributes.text(name, label)
