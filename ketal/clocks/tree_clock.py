"""Tree clocks: vector clocks whose joins visit only what they change.

A tree clock is a vector clock that remembers how each entry was learned. Its root is the node (the
paper: the thread) whose clock it is. Node v is a child of node u if the clock learned v's entry
from u, and v is *attached* at the entry that u had then. Two things follow. Who knows u's entry
knows all that is below u. And who knows u up to where v was attached knows v and all that was
attached to u before. So a join begins at the other's root and leaves out whole subtrees.

Mathur, Tunç, Pavlogiannis and Viswanathan, "A Tree Clock Data Structure for Causal Orderings in
Concurrent Executions", ASPLOS 2022, Algorithm 2: `increment`, `join`, `monotone_copy`.

Elsewhere in `ketal.clocks` replicas and stamps are values. This is the exception: the gain is in
changing a tree in place, so `TreeClock` is mutable, and an entry costs memory in each tree. It is
no scheme: a stamp would be the vector clock of the event, which the scheme `vector` writes and
reads already. It serves who computes the clocks of threads and locks, or of whatever else is shared
and not sent. A message needs a `copy` of the whole tree.

The one rule: an event of a node is one increment of its clock, then joins, then copies of it, in
this order. A clock with one own entry is then always the same clock, and the trees stay right.
"""

from __future__ import annotations

from collections.abc import Iterator


class _Entry:
    """What is known of a node, and how: a node of the tree.

    Children are a linked list, the one that was attached last first.
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
        """Yield the children, the last one that was attached first."""
        child = self.child
        while child is not None:
            yield child
            child = child.next

    def detach(self) -> None:
        """Take it, with what is below it, from its parent."""
        if self.previous is not None:
            self.previous.next = self.next
        elif self.parent is not None:
            self.parent.child = self.next
        if self.next is not None:
            self.next.previous = self.previous
        self.parent = self.previous = self.next = None

    def attach(self, child: _Entry, at: int) -> None:
        """Make an entry the first child."""
        child.attached, child.parent, child.next = at, self, self.child
        if self.child is not None:
            self.child.previous = child
        self.child = child


class TreeClock:
    """The clock of a node, or of something that takes over the clocks of nodes (a lock).

    Parameters
    ----------
    node : str or None
        The node whose clock it is; None of a lock, which has no entry before the first copy.

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
        """Return how many events of a node are known."""
        entry = self._entries.get(node)
        return 0 if entry is None else entry.count

    def vector(self) -> dict[str, int]:
        """Return the vector clock, zeros left out."""
        return {name: entry.count for name, entry in self._entries.items() if entry.count}

    def increment(self) -> None:
        """Count an event of the node whose clock it is.

        Raises
        ------
        ValueError
            If it is no node's.
        """
        if self._root is None:
            raise ValueError("a tree clock without a node counts no events")
        self._root.count += 1

    def join(self, other: TreeClock) -> int:
        """Take over what another clock knows and this one does not.

        Parameters
        ----------
        other : TreeClock
            A clock of the same execution. It knows of this one's node no more than this one does.

        Returns
        -------
        int
            How many entries of the other one were looked at.

        Raises
        ------
        ValueError
            If this clock is no node's, or the other one knows an event of the node that this one
            does not.
        """
        if self._root is None:
            raise ValueError("a tree clock without a node takes over clocks by monotone_copy")
        if other._root is None:
            return 0
        if other._root.count <= self.get(other._root.name):
            return 1
        if other.get(self._root.name) > self._root.count:
            raise ValueError(f"the other clock knows an event of {self._root.name!r} to come")
        visited, newer = self._newer(other._root, None)
        self._replace(newer)
        self._root.attach(self._entries[other._root.name], self._root.count)
        return visited

    def monotone_copy(self, other: TreeClock) -> int:
        """Become the clock of the other one's node; it knows all that this one knows.

        Parameters
        ----------
        other : TreeClock
            The clock of a node, which has joined this one since it was last copied to.

        Returns
        -------
        int
            How many entries of the other one were looked at.

        Raises
        ------
        ValueError
            If the other one is no node's, or does not know the last event that was copied.
        """
        if other._root is None:
            raise ValueError("a tree clock without a node is not copied")
        if self._root is not None and self._root.count > other.get(self._root.name):
            raise ValueError(f"the other clock lacks the last event of {self._root.name!r}")
        visited, newer = self._newer(other._root, self._root)
        self._replace(newer)
        self._root = self._entries[other._root.name]
        return visited

    def copy(self) -> TreeClock:
        """Return a clock that is equal, entry by entry: what a message carries."""
        out = TreeClock()
        if self._root is not None:
            _, every = out._newer(self._root, None)
            out._replace(every)
            out._root = out._entries[self._root.name]
        return out

    def _newer(self, root: _Entry, moved: _Entry | None) -> tuple[int, list[_Entry]]:
        """Return how many of another tree's entries were looked at, and which ones are newer.

        Each comes after what is below it. The root is one of them, and where the root of this
        tree is to be `moved`, the entry of its node too.
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
        """Take over entries of another tree, each attached as it is there."""
        for entry in newer:
            if (old := self._entries.get(entry.name)) is not None:
                old.detach()
        # Parents first, and of children the one that was attached first.
        for entry in reversed(newer):
            own = self._entries.get(entry.name)
            if own is None:
                own = self._entries[entry.name] = _Entry(entry.name, 0)
            own.count = entry.count
            if entry.parent is not None:
                self._entries[entry.parent.name].attach(own, entry.attached)

    def validate_state(self) -> None:
        """Check the shape of the tree: every entry once, children in the order of attachment."""
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
