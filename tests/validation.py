"""The invariants of stateful classes as assertions, for tests to check after every event."""

from __future__ import annotations

from ketal.runtime.execution import Execution


def validate(execution: Execution) -> None:
    """Assert the invariant of each stateful class of an execution."""
    for run in execution.runs:
        run.validate_state()
    execution.admission.intake.validate_state()
    if execution.admission.membership is not None:
        execution.admission.membership.memory.validate_state()
        execution.admission.membership.incarnations.table.validate_state()
