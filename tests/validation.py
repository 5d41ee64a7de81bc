"""What tests call after every event: the rules of what has state, as assertions."""

from __future__ import annotations

from ketal.runtime.monitor import Monitor


def validate(monitor: Monitor) -> None:
    """Assert the rule of each class of a Monitor that has state."""
    for run in monitor._runs:
        run.validate_state()
    monitor._admission.intake.contents.validate_state()
