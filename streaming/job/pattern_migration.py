"""Resuming a job from saved state, of the same program or another: stop, fresh, drain.

The state has the fingerprints of its patterns. With the same ones a job resumes; with others it
stops, begins anew at the stored offsets, or *drains*: the patterns that changed retire in the
execution (`ketal.runtime.retirement`) until their runs are over.

A pattern without a time window cannot be drained, since its runs may live for ever; nor can one
that runs at nodes, where a node may learn of an old event at any time.

The old program is compiled again, from its text in the state. On Spark nothing drains: an executor
has no compiler, and a second job with another group does the same.

The one rule: while a job drains, its state holds both programs, and a third one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ketal.errors import OtherProgramError, StateError
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.runtime.state.migration import saved_program
from ketal.runtime.state.records import Records
from ketal.runtime.state.snapshots import decoded


class Resumed(NamedTuple):
    """An execution that was restored.

    Attributes
    ----------
    execution : Execution
        The execution, with the saved state.
    notice : str
        How a change of the program was handled, in a sentence; empty where nothing changed.
    """

    execution: Execution
    notice: str = ""


def resume(
    program: Program,
    state: bytes | Mapping[bytes, bytes],
    *,
    on_change: str = "stop",
    **options: Any,
) -> Resumed:
    """Return an execution that goes on from a saved state.

    Parameters
    ----------
    program : Program
        The program of the job now.
    state : bytes, or mapping of bytes to bytes
        A snapshot of an execution, or records, with all later changes applied.
    on_change : {"stop", "fresh", "drain"}
        What to do if the state is of another program.
    **options
        As for `Execution`.

    Raises
    ------
    StateError
        If the state is damaged; or it is of another program, and `on_change` is "stop", or "drain"
        where a pattern cannot be drained. It says what changed.
    """
    records = decoded(state) if isinstance(state, bytes) else state
    try:
        return Resumed(Execution.restored(program, records, **options))
    except StateError as fault:
        if on_change == "fresh":
            execution = Execution.restored(program, records, changed=True, **options)
            return Resumed(execution, f"{fault}; starting anew at the stored offsets")
        read = Records(records)
        if read.retiring is not None and isinstance(fault, OtherProgramError):
            names = list(read.retiring.one("program")["marks"])
            raise StateError(second_change(names, fault)) from None
        if on_change == "drain" and read.retiring is None:
            return _begin_draining(program, records, read, options)
        raise


def _patterns_to_drain(was: Program, now: Program) -> list[str]:
    """Return the patterns of a program that changed or are gone.

    Raises
    ------
    StateError
        If one cannot be drained.
    """
    fingerprints = {c.name: c.fingerprint for c in now.compiled}
    changed = [c.name for c in was.compiled if fingerprints.get(c.name) != c.fingerprint]
    for name in changed:
        _refuse_to_drain(was, name)
    return changed


def change_notice(changed: Sequence[str]) -> str:
    """Return the notice that these patterns, which changed or are gone, drain."""
    if not changed:
        return "patterns are new, and the others go on"
    return f"draining {', '.join(changed)}: the old patterns run until their windows are over"


def drain_hint(fault: StateError) -> str:
    """Return the clause of a hint about draining; empty where a state is missing or damaged."""
    is_changed = isinstance(fault, OtherProgramError)
    return ", drain lets the old patterns finish" if is_changed else ""


def drained_notice(names: Sequence[str]) -> str:
    """Return the notice that these patterns are drained; empty where there are none."""
    return f"{', '.join(names)}: drained, the old patterns are over" if names else ""


def second_change(names: Sequence[str], what: object) -> str:
    """Return why another change is refused until these patterns are drained."""
    return (
        f"the job still drains an earlier change of {', '.join(names)}, and this is a second one: "
        f"{what}; run it as it was changed the first time until that is over"
    )


def _begin_draining(
    program: Program, records: Mapping[bytes, bytes], read: Records, options: dict[str, Any]
) -> Resumed:
    """Return an execution that begins to drain the patterns that changed."""
    whole = saved_program(read)
    changed = _patterns_to_drain(whole, program)
    retiring = whole.only(changed) if changed else None
    execution = Execution.restored(program, records, changed=True, retiring=retiring, **options)
    if over := execution.drop_retired():
        notice = f"nothing is under way of {', '.join(over)}; going on with what is new"
        return Resumed(execution, notice)
    return Resumed(execution, change_notice(changed))


def _refuse_to_drain(old: Program, name: str) -> None:
    """Raise if a pattern cannot be drained."""
    compiled = old[name].one
    if compiled.pattern.deployment is not None:
        why = "it runs at nodes, and a node may learn of an old event at any time"
    elif compiled.kind == "check":
        why = "it is a check, whose runs have no end"
    elif compiled.window_us is None:
        why = "it has no time window (`within 10 s`), so its runs may live for ever"
    else:
        return
    raise StateError(f"pattern {name} changed or is gone, and cannot be drained: {why}")
