"""Resuming a job from saved state, with the same program or a changed one (`--on-change`).

The state has the fingerprints of its patterns. If they are those of the program, the job resumes.
If they differ, it stops (`stop`), continues without the runs of the patterns that changed
(`fresh`), or drains (`drain`): these patterns retire in the execution (`ketal.runtime.retirement`)
until their runs have ended.

A pattern without a time window cannot be drained, since its runs may live for ever; nor can a
pattern that runs at nodes, since a node may learn of an old event at any time.

The old program is compiled again from its text, which is in the state. On Spark no pattern drains:
an executor has no compiler, and a second job with another group does the same.

The one rule: while a job drains, its state holds both programs, and a third one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ketal.errors import OtherProgramError, StateError
from ketal.model.limits import Limits
from ketal.programs.program import Program
from ketal.runtime.execution import Execution
from ketal.runtime.state.program_records import saved_program
from ketal.runtime.state.records import Records
from ketal.runtime.stream_release import JobRelease


class Resumed(NamedTuple):
    """A restored execution, and a notice of how a change of its program was handled."""

    execution: Execution
    notice: str = ""


def resume(
    program: Program,
    records: Mapping[bytes, bytes],
    release: type[JobRelease] = JobRelease,
    *,
    on_change: str = "stop",
    limits: Limits | None = None,
) -> Resumed:
    """Return an execution that continues from saved state.

    `release` is that of the execution which saved it. `on_change` is "stop", "fresh" or "drain":
    what to do if the state is of another program.

    Raises a StateError if the state is damaged; or if it is of another program, and `on_change` is
    "stop", or is "drain" and a pattern cannot be drained. The message names the change.
    """
    options: dict[str, Any] = {"limits": limits, "release": release}
    try:
        return Resumed(Execution.restored(program, records, **options))
    except StateError as fault:
        if on_change == "fresh":
            execution = Execution.restored(program, records, changed=True, **options)
            return Resumed(
                execution, f"{fault}; continuing without the unfinished runs of changed patterns"
            )
        read = Records(records)
        if read.retiring is not None and isinstance(fault, OtherProgramError):
            names = ", ".join(read.retiring.body("program")["marks"])
            raise StateError(
                f"the job is still draining an earlier change of {names}, and this is a second "
                f"one: {fault}; run the patterns of the first change until they are drained"
            ) from None
        if on_change != "drain" or read.retiring is not None:
            raise
    old = saved_program(read)
    changed = _patterns_to_drain(old, program)
    retiring = old.only(changed) if changed else None
    execution = Execution.restored(program, records, changed=True, retiring=retiring, **options)
    if over := execution.drop_retired():
        notice = f"no unfinished runs of {', '.join(over)}; continuing with the new patterns"
    elif changed:
        notice = (
            f"draining {', '.join(changed)}: the old patterns run until their windows have ended"
        )
    else:
        notice = "new patterns were added; the others continue"
    return Resumed(execution, notice)


def _patterns_to_drain(old: Program, new: Program) -> list[str]:
    """Return the names of the old patterns that changed or are gone.

    One of them that cannot be drained is a StateError.
    """
    fingerprints = {compiled.name: compiled.fingerprint for compiled in new.compiled}
    changed = [
        compiled
        for compiled in old.compiled
        if fingerprints.get(compiled.name) != compiled.fingerprint
    ]
    for compiled in changed:
        if compiled.pattern.deployment is not None:
            why = "it runs at nodes, and a node may learn of an old event at any time"
        elif compiled.kind == "check":
            why = "it is a check, whose runs have no end"
        elif compiled.window_us is None:
            why = "it has no time window (`within 10 s`), so its runs may never end"
        else:
            continue
        raise StateError(
            f"pattern {compiled.name} was changed or removed, and cannot be drained: {why}"
        )
    return [compiled.name for compiled in changed]
