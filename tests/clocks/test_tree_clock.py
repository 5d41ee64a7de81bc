"""Tree clocks against vector clocks, for threads that share locks and nodes that send messages.

Mathur, Tunç, Pavlogiannis and Viswanathan, ASPLOS 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketal.clocks.tree_clock import TreeClock
from tests.clocks.executions import SampleRun, sample_runs
from tests.sampling import sample


@dataclass
class LockedRun:
    """Threads and locks, each with a tree clock and a vector clock.

    Attributes
    ----------
    visited : int
        The number of entries that operations on trees visited.
    changed : int
        The number of vector entries that changed (the paper's VTWork).
    read : int
        The number of entries that operations on vectors read: all of the other vector each time.
    """

    trees: dict[str, TreeClock] = field(default_factory=dict)
    vectors: dict[str, dict[str, int]] = field(default_factory=dict)
    visited: int = 0
    changed: int = 0
    read: int = 0

    def _event(self, thread: str) -> TreeClock:
        tree = self.trees.setdefault(thread, TreeClock(thread))
        vector = self.vectors.setdefault(thread, {})
        vector[thread] = vector.get(thread, 0) + 1
        tree.increment()
        self.visited += 1
        self.changed += 1
        self.read += 1
        return tree

    def _copied(self, source: str, target: str) -> None:
        into, of = self.vectors.setdefault(target, {}), self.vectors.get(source, {})
        newer = {name: count for name, count in of.items() if count > into.get(name, 0)}
        into.update(newer)
        self.changed += len(newer)
        self.read += len(of)

    def acquire(self, thread: str, lock: str) -> None:
        """Let a thread acquire a lock, and join the lock's clock."""
        self.visited += self._event(thread).join(self.trees.setdefault(lock, TreeClock()))
        self._copied(lock, thread)

    def release(self, thread: str, lock: str) -> None:
        """Let a thread release a lock that it holds, and copy its clock to the lock."""
        tree = self._event(thread)
        self.visited += self.trees.setdefault(lock, TreeClock()).monotone_copy(tree)
        self._copied(thread, lock)

    def validate_state(self) -> None:
        """Assert that the clocks are equal and the trees are valid."""
        for name, tree in self.trees.items():
            tree.validate_state()
            assert tree.vector() == self.vectors.get(name, {})


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=sample(50, 200)
)


@given(steps=STEPS)
def test_tree_clocks_of_threads_and_locks_equal_vector_clocks(
    steps: list[tuple[int, int, bool]],
) -> None:
    """By the theorem, trees visit at most three times the entries that change in vectors."""
    run = LockedRun()
    for thread, lock, releases in steps:
        run.acquire(f"t{thread}", f"l{lock}")
        run.validate_state()
        if releases:
            run.release(f"t{thread}", f"l{lock}")
            run.validate_state()
        assert run.visited <= 3 * run.changed


@given(run=sample_runs())
def test_tree_clocks_of_messages_equal_vector_clocks(run: SampleRun) -> None:
    trees: dict[str, TreeClock] = {}
    messages: list[TreeClock] = []
    for (node, clock), causes in zip(run.clocks(), run.causes, strict=True):
        tree = trees.setdefault(node, TreeClock(node))
        tree.increment()
        for cause in causes:
            tree.join(messages[cause])
            tree.validate_state()
        assert tree.vector() == clock
        assert all(tree.get(name) == clock.get(name, 0) for name in run.nodes)
        messages.append(tree.copy())
        messages[-1].validate_state()
    # Later operations on the original do not change a copy.
    assert [message.vector() for message in messages] == [clock for _, clock in run.clocks()]


def test_a_join_skips_the_subtree_of_a_known_entry() -> None:
    """b knows forty nodes, and a has joined b's clock; then b has one more event."""
    a, b = TreeClock("a"), TreeClock("b")
    for number in range(40):
        other = TreeClock(f"n{number}")
        other.increment()
        b.increment()
        b.join(other)
    a.increment()
    assert a.join(b) == 41
    b.increment()
    a.increment()
    assert a.join(b) == 2  # b, and the child that was attached last
    assert a.join(b) == 1
    assert len(a.vector()) == 42
    a.validate_state()


def test_threads_that_use_few_locks_visit_a_fraction_of_the_vectors() -> None:
    """Sixty threads take turns, each nine times with its own lock and once with another's."""
    run = LockedRun()
    for turn in range(1_200):
        thread = turn % 60
        for lock in (*[thread] * 9, (thread + 7) % 60):
            run.acquire(f"t{thread}", f"l{lock}")
            run.release(f"t{thread}", f"l{lock}")
    run.validate_state()
    assert all(len(run.vectors[f"t{thread}"]) == 60 for thread in range(60))
    assert 5 * run.visited < run.read
    assert run.visited < 1.2 * run.changed


def test_a_clock_without_a_node_refuses_events_and_joins() -> None:
    lock, a = TreeClock(), TreeClock("a")
    with pytest.raises(ValueError, match="without a node cannot count events"):
        lock.increment()
    with pytest.raises(ValueError, match="cannot join; use monotone_copy"):
        lock.join(a)
    with pytest.raises(ValueError, match="without a node cannot be copied"):
        a.monotone_copy(lock)
    assert a.join(lock) == 0
    assert lock.copy().vector() == lock.vector() == {}


def test_an_impossible_clock_is_refused() -> None:
    a, again, b = TreeClock("a"), TreeClock("a"), TreeClock("b")
    again.increment()
    b.increment()
    b.join(again)
    with pytest.raises(ValueError, match="knows a future event of 'a'"):
        a.join(b)
    lock = TreeClock()
    lock.monotone_copy(b)
    with pytest.raises(ValueError, match="lacks the last event of 'b'"):
        lock.monotone_copy(again)
