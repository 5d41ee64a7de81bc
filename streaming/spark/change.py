"""Which change of its program a job on Spark is at, and whether another one can come (DESIGN 7).

A job notes its program as the snapshot of a monitor that has seen nothing: restoring that says
whether a program is the same, and what changed if it is not, as it does for every other snapshot.
It holds the program's text too, so the old program of a job that drains is compiled again by the
driver, from there; the executors get its tables beside the new ones.

Spark's state stays where it is: each key group takes the change up when it is called the next time
(`ketal.streaming.drain`), and says in its figures that it did, and whether something of the old
patterns is under way. So keys have to stay in their groups, and a group has to keep time if it
did, for that is part of what Spark keeps of it.

The one rule: a job drains until each of its groups has said that it does not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ketal.changing import saved_program
from ketal.errors import StateError
from ketal.limits import Limits
from ketal.monitor import Monitor
from ketal.program import Program
from ketal.streaming.distribution import uses_time
from ketal.streaming.drain import to_drain
from ketal.streaming.spark.families import families, numbered


@dataclass(frozen=True)
class Change:
    """What key groups are told of the last change of their program.

    Parameters
    ----------
    number : int
        How many changes there were that groups took up with their state.
    was : Program or None
        What ran before the last one, as long as that drains.
    names : tuple of str
        The patterns of it that changed or are gone.
    timed : bool
        Whether Spark keeps time for the groups.
    """

    number: int = 0
    was: Program | None = None
    names: tuple[str, ...] = ()
    timed: bool = False

    def noted(self) -> dict[str, Any]:
        """Return what a job notes of it."""
        said: dict[str, Any] = {"change": self.number, "timed": self.timed}
        if self.was is not None:
            said["draining"] = {"program": blank(self.was), "patterns": list(self.names)}
        return said

    @classmethod
    def of(cls, held: Mapping[str, Any], program: Program) -> Change:
        """Return the change that a job noted, whose program is this one now.

        Raises
        ------
        StateError
            If the old program does not compile any more.
        """
        number = int(held.get("change", 0))  # format 2 has none
        timed = bool(held.get("timed", uses_time(program)))
        if "draining" not in held:
            return cls(number, timed=timed)
        draining = held["draining"]
        was = saved_program(_bytes(draining["program"]))
        return cls(number, was, tuple(draining["patterns"]), timed)

    def is_over(self, groups: Mapping[str, Mapping[str, Any]], count: int) -> bool:
        """Return whether nothing of the old patterns is under way in any of so many groups."""
        return len(groups) == count and all(
            of["change"] == self.number and not of["under_way"] for of in groups.values()
        )


def blank(program: Program, limits: Limits | None = None) -> str:
    """Return what names a program: the state of a monitor that has seen nothing, as text."""
    return base64.b64encode(Monitor(program, limits=limits).snapshot()).decode()


def _bytes(said: str) -> bytes:
    try:
        return base64.b64decode(said, validate=True)
    except binascii.Error as fault:
        raise ValueError(str(fault)) from None


def changed_program(said: str, program: Program, limits: Limits) -> str:
    """Return what a program is otherwise than the one that was noted; empty if nothing."""
    try:
        Monitor.restore(program, _bytes(said), limits=limits)
    except StateError as fault:
        return str(fault).partition("of another program: ")[2] or str(fault)
    return ""


def begin_to_drain(held: Mapping[str, Any], program: Program, key_groups: int) -> Change:
    """Return the change from the program that a job noted to another one.

    Raises
    ------
    StateError
        If the groups cannot keep their state, or a pattern cannot be drained: it says why.
    """
    was = saved_program(_bytes(held["program"]))
    before = Change.of(held, was)
    names = tuple(to_drain(was, program))
    groups, others = (numbered(families(of, key_groups)) for of in (was, program))
    if groups != others:
        raise StateError(
            f"it cannot be drained, for keys would leave the groups with their state: there are "
            f"{groups}, and would be {others}"
        )
    if uses_time(program) and not before.timed:
        raise StateError(
            "it cannot be drained, for nothing went by time when the checkpoint began, and now "
            "something does"
        )
    return Change(before.number + 1, was, names, before.timed)
