"""The state of the process that a command changes, and restores at its end."""

from __future__ import annotations

import gc

import pytest

from ketal.cli.process_state import calm_collector


@pytest.mark.parametrize("is_frozen", [False, True])
def test_collector_is_after_a_command_as_it_was_before(is_frozen: bool) -> None:
    was_frozen, threshold = bool(gc.get_freeze_count()), gc.get_threshold()
    (gc.freeze if is_frozen else gc.unfreeze)()
    try:
        frozen = gc.get_freeze_count()
        with calm_collector():
            assert gc.get_freeze_count() == frozen
            assert gc.get_threshold() > threshold
        assert bool(gc.get_freeze_count()) == is_frozen
        assert gc.get_threshold() == threshold
    finally:
        (gc.freeze if was_frozen else gc.unfreeze)()
