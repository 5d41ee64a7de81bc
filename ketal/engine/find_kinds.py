"""The engines of a `find`, and which pattern needs which (DESIGN 3, 4, 6).

- `ForwardFind` takes events in the order offered: `find strict`, `find next`,
  and `find any` under arrival order.
- `JoinFind` is `find any` under CausalOrder, whose matches the partial order
  alone defines.

The one rule: the pattern decides, not the log.
"""

from __future__ import annotations

from ketal.engine.find import Setup
from ketal.engine.find_any import JoinFind
from ketal.engine.find_in_order import ForwardFind

FindRun = ForwardFind | JoinFind


def find_run(setup: Setup) -> FindRun:
    """Return the engine that a scope of a `find` pattern needs."""
    return JoinFind(setup) if setup.joins else ForwardFind(setup)
