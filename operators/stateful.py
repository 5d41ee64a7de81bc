"""Saving and loading of objects whose state is the attributes that their class names.

The saved state is a list of the attributes' values, in the order of the names: the items of a
container, the state of a `Stateful` part. A set is saved in sorted order, so that nothing depends
on hashes. Loading fills a container again and does not replace it, so that objects which share it
have the same one; a list within a container is loaded as a tuple.

The one rule: an attribute that is saved is named once, and is loaded with the type that it had.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar


class Stateful:
    """An object whose state is the attributes that `STATE` names.

    A class that computes other attributes from these extends `load`.
    """

    __slots__ = ()
    STATE: ClassVar[tuple[str, ...]] = ()

    def save(self) -> list[Any]:
        """Return the state as plain data."""
        return [_saved(getattr(self, name)) for name in self.STATE]

    def load(self, state: Any) -> None:
        """Load what `save` returned into a fresh object."""
        for name, value in zip(self.STATE, state, strict=True):
            current = getattr(self, name)
            if isinstance(current, Stateful):
                current.load(value)
            elif isinstance(current, dict):
                current.clear()
                current.update({key: _loaded(one) for key, one in value.items()})
            elif isinstance(current, set):
                current.clear()
                current.update(map(_loaded, value))
            elif isinstance(current, deque):
                current.clear()
                current.extend(map(_loaded, value))
            else:
                setattr(self, name, _loaded(value))


def _saved(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.save()
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, set):
        return sorted(value)
    return list(value) if isinstance(value, deque) else value


def _loaded(value: Any) -> Any:
    return tuple(map(_loaded, value)) if isinstance(value, list) else value
