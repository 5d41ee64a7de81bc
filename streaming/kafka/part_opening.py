"""Opening a part: the state that its committed offsets name is restored, if they name one.

The one rule: a part has the state of its committed offsets, or the job ends, except that
`--on-change fresh` begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka import TopicPartition

from ketal.errors import OtherProgramError, StateError
from ketal.streaming.kafka.partition_state import Part
from ketal.streaming.kafka.running_job import RunningJob
from ketal.streaming.kafka.state.storage import Storage, Store


def metadata_of(text: str | None) -> dict[str, Any]:
    """Return the metadata of a commit beside the offset; nothing if it is not one of ketal's."""
    try:
        decoded = json.loads(text or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def part_of(engine: RunningJob, positions: Mapping[TopicPartition, int], store: Store) -> Part:
    """Return a part without state."""
    return Part(engine.job, engine.program, positions, store, engine.watch)


def open_part(
    engine: RunningJob,
    storage: Storage,
    number: int,
    positions: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, Any],
    loaded: Any,
) -> Part:
    """Return a part with the state that belongs to the offsets that are committed.

    `positions` and `committed` are the next offsets, and the commits or None; `loaded` is what the
    storage has loaded. Its `notice` says how a change of the program was handled.

    Raises
    ------
    StateError
        If the state does not fit, and `on_change` does not allow that.
    """
    job = engine.job
    # One consumer restores only what it has committed itself, once it has begun.
    on_change = "stop" if engine.claimed and not job.is_shared else job.on_change
    held = [metadata_of(one.metadata) for one in committed.values() if one is not None]
    # A commit with a changelog and no name has the beginning of a partition, and no state.
    commits = [one for one in held if "commit" in one or "changelog" not in one]
    try:
        if not all(map(storage.names_state, held)):
            raise StateError(
                f"the offsets of group {job.group_id} were committed by another program, or with "
                "the state elsewhere"
            )
        if not commits:
            storage.check_unused(number, loaded)
            return part_of(engine, positions, storage.empty(number))
        store, records = storage.restore(number, loaded, commits)
        part = part_of(engine, positions, store)
        notice = part.restore(records, on_change)
        part.dirty = bool(notice) or len(commits) < len(committed)
        part.metadata = commits[0]
        part.notice = f"part {number}: {notice}" if notice and job.is_shared else notice
    except StateError as fault:
        if on_change != "fresh":
            raise StateError(f"{fault}\n  hint: {_hint(storage, fault, held)}") from None
        if not held:
            then = f"beginning anew at the {job.start} messages"
        elif job.is_shared:
            then = f"part {number} starts anew at the stored offsets"
        else:
            then = "starting anew at the stored offsets, with nothing of what was before"
        part = part_of(engine, positions, storage.empty(number, loaded))
        part.notice = f"{fault}; {then}"
    return part


def _hint(storage: Storage, fault: StateError, held: list[dict[str, Any]]) -> str:
    if not held:
        return (
            "--on-change fresh begins anew, where [kafka] start says; another group_id and "
            "another [state] store do so too, and leave what is there"
        )
    is_changed = isinstance(fault, OtherProgramError)
    drain = ", drain lets the old patterns finish" if is_changed else ""
    return f"--on-change fresh starts anew at the stored offsets{drain}; {storage.anew}"
