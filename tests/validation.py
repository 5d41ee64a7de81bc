"""What tests call after every event: the rules of what has state, as assertions."""

from __future__ import annotations

from ketal.runtime.execution import Execution


def validate(execution: Execution) -> None:
    """Assert the rule of each class of an execution that has state."""
    for run in execution.runs:
        run.validate_state()
    execution.admission.intake.validate_state()
