"""Tree clocks: vector clocks whose joins skip the entries that do not change.

A tree clock is a vector clock that records from which node each entry was learned. Its root is the
node (in the paper: the thread) whose clock it is. Node v is a child of node u if the clock learned
v's entry from u; v is *attached* at the entry that u had at that time. Two things follow. A clock
that has u's entry has all entries below u. And a clock that has u's entry as of the attachment of v
has v's entry and those of all children attached to u earlier. So a join starts at the root of the
other clock and skips whole subtrees.

Mathur, Tunç, Pavlogiannis and Viswanathan, "A Tree Clock Data Structure for Causal Orderings in
Concurrent Executions", ASPLOS 2022, Algorithm 2: `increment`, `join`, `monotone_copy`.

Elsewhere in `ketal.clocks` replicas and stamps are immutable values. `TreeClock` is mutable, since
its speed comes from changing a tree in place, and each tree has a copy of each entry. It is
not a `Scheme`: the stamp would be the vector clock of the event, as in the scheme `vector`. It is
meant for computing the clocks of threads and locks, or of other state that is shared rather than
sent. A message needs a `copy` of the whole tree.

The one rule: an event of a node is one increment of its clock, then joins, then copies of the
clock, in this order. So two clocks of a node with the same own entry are equal, which the skipping
of subtrees relies on.
"""

from __future__ import annotations

from collections.abc import Iterator


class _Entry:
    """A node of the tree: the entry of a node of the execution, and where it was learned.

    Children are a linked list, the last attached first.
    """

    __slots__ = ("attached", "child", "count", "name", "next", "parent", "previous")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.attached = 0
        self.parent: _Entry | None = None
        self.child: _Entry | None = None
        self.previous: _Entry | None = None
        self.next: _Entry | None = None

    def children(self) -> Iterator[_Entry]:
        """Yield the children, the last attached first."""
        child = self.child
        while child is not None:
            yield child
            child = child.next

    def detach(self) -> None:
        """Remove the entry, with its subtree, from its parent."""
        if self.previous is not None:
            self.previous.next = self.next
        elif self.parent is not None:
            self.parent.child = self.next
        if self.next is not None:
            self.next.previous = self.previous
        self.parent = self.previous = self.next = None

    def attach(self, child: _Entry, at: int) -> None:
        """Insert `child` as the first child, attached at the count `at`."""
        child.attached, child.parent, child.next = at, self, self.child
        if self.child is not None:
            self.child.previous = child
        self.child = child


class TreeClock:
    """The clock of a node, or of a lock, to which the clocks of nodes are copied.

    Parameters
    ----------
    node : str or None
        The node whose clock it is; None for a lock, whose clock is empty before the first copy.

    Examples
    --------
    >>> from ketal.clocks.tree_clock import TreeClock
    >>> a, b, lock = TreeClock("a"), TreeClock("b"), TreeClock()
    >>> a.increment()
    >>> lock.monotone_copy(a)
    1
    >>> b.increment()
    >>> b.join(lock)
    1
    >>> b.vector()
    {'b': 1, 'a': 1}
    """

    __slots__ = ("_entries", "_root")

    def __init__(self, node: str | None = None) -> None:
        self._root = None if node is None else _Entry(node, 0)
        self._entries = {} if self._root is None else {self._root.name: self._root}

    def get(self, node: str) -> int:
        """Return the number of known events of a node."""
        entry = self._entries.get(node)
        return 0 if entry is None else entry.count

    def vector(self) -> dict[str, int]:
        """Return the vector clock, without zeros."""
        return {name: entry.count for name, entry in self._entries.items() if entry.count}

    def increment(self) -> None:
        """Count an event of the clock's own node; raise a ValueError if it has none."""
        if self._root is None:
            raise ValueError("a tree clock without a node cannot count events")
        self._root.count += 1

    def join(self, other: TreeClock) -> int:
        """Set this clock to the pointwise maximum of both; return how many entries were visited.

        `other` is a clock of the same execution. Raises a ValueError if this is not the clock of a
        node, or `other` knows a later event of that node.
        """
        if self._root is None:
            raise ValueError("a tree clock without a node cannot join; use monotone_copy")
        if other._root is None:
            return 0
        if other._root.count <= self.get(other._root.name):
            return 1
        if other.get(self._root.name) > self._root.count:
            raise ValueError(f"the other clock knows a future event of {self._root.name!r}")
        visited, newer = self._newer(other._root, None)
        self._replace(newer)
        self._root.attach(self._entries[other._root.name], self._root.count)
        return visited

    def monotone_copy(self, other: TreeClock) -> int:
        """Replace this clock by a copy of `other`; return how many of its entries were visited.

        `other` is nowhere less: it has joined this clock since the last copy to it. Raises a
        ValueError if it is not the clock of a node, or lacks the last event copied to this clock.
        """
        if other._root is None:
            raise ValueError("a tree clock without a node cannot be copied by monotone_copy")
        if self._root is not None and self._root.count > other.get(self._root.name):
            raise ValueError(f"the other clock lacks the last event of {self._root.name!r}")
        visited, newer = self._newer(other._root, self._root)
        self._replace(newer)
        self._root = self._entries[other._root.name]
        return visited

    def copy(self) -> TreeClock:
        """Return a deep copy, for a message to carry."""
        out = TreeClock()
        if self._root is not None:
            _, entries = out._newer(self._root, None)
            out._replace(entries)
            out._root = out._entries[self._root.name]
        return out

    def _newer(self, root: _Entry, moved: _Entry | None) -> tuple[int, list[_Entry]]:
        """Return the number of visited entries of another tree, and those newer than in this tree.

        The newer entries are in post-order, `root` last. If the root of this tree is given as
        `moved`, the entry of its node is returned too, so that it is attached to a parent.
        """
        visited, newer = 1, []
        path = [(root, root.children())]
        while path:
            entry, children = path[-1]
            for child in children:
                visited += 1
                if child.count > self.get(child.name):
                    path.append((child, child.children()))
                    break
                if moved is not None and child.name == moved.name:
                    newer.append(child)
                if child.attached <= self.get(entry.name):
                    newer.append(entry)
                    path.pop()
                    break
            else:
                newer.append(entry)
                path.pop()
        return visited, newer

    def _replace(self, newer: list[_Entry]) -> None:
        """Copy newer entries of another tree, each attached to the same parent as there."""
        for entry in newer:
            if (old := self._entries.get(entry.name)) is not None:
                old.detach()
        # Parents before children, and children in the order in which they were attached.
        for entry in reversed(newer):
            own = self._entries.get(entry.name)
            if own is None:
                own = self._entries[entry.name] = _Entry(entry.name, 0)
            own.count = entry.count
            if entry.parent is not None:
                self._entries[entry.parent.name].attach(own, entry.attached)

    def validate_state(self) -> None:
        """Assert that the tree has every entry once, and children in the order of attachment."""
        reached: list[_Entry] = []
        waiting = [] if self._root is None else [self._root]
        assert self._root is None or self._root.parent is None
        while waiting:
            entry = waiting.pop()
            reached.append(entry)
            last = None
            for child in entry.children():
                assert child.parent is entry
                assert child.previous is last
                assert child.attached <= (entry.count if last is None else last.attached)
                waiting.append(child)
                last = child
        assert len(reached) == len(self._entries)
        assert all(self._entries[entry.name] is entry for entry in reached)
