"""How deep and how large guards are with the events that they name put in their place.

The text bounds the nesting of one guard, and an event may name another: a chain of events is as
deep as all of them, and one that names the one before twice doubles with each.

The one rule: what is too deep or too large is refused before it is expanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ketal.analysis.declared_names import naming
from ketal.errors import pattern_error
from ketal.model import syntax
from ketal.model.limits import Limits
from ketal.model.syntax_walks import children

EXPANDED_NESTING = 3
"""Levels of a guard with the events that it names, as a multiple of `nesting_max`."""

_Measures = dict[str, tuple[int, int]]


def refuse_large(
    events: Mapping[str, syntax.Guard], guards: Iterable[syntax.Guard], limits: Limits
) -> None:
    """Refuse guards that are too deep, or together too large, with the events that they name.

    Parameters
    ----------
    events : mapping of str to Guard
        The guard of each event; none names itself, directly or through others.
    guards : iterable of Guard
        The guards that are expanded.
    limits : Limits
        `nesting_max` and `pattern_bytes_max`.

    Raises
    ------
    PatternError
        At the first guard beyond a limit.
    """
    levels_max = limits.nesting_max * EXPANDED_NESTING
    known: _Measures = {}
    for name in naming(events).static_order():
        known[name] = _measured(events[name], known)
    total = 0
    for guard in guards:
        levels, parts = _measured(guard, known)
        total += parts
        if levels > levels_max:
            raise pattern_error(
                "K003",
                f"with the events that it names, this is nested deeper than {levels_max} levels",
                guard.span,
                hint=f"limit nesting_max, {limits.nesting_max}, of which it is "
                f"{EXPANDED_NESTING} times; let fewer events be defined by others",
            )
        if total > limits.pattern_bytes_max:
            raise pattern_error(
                "K003",
                f"with the events that they name, guards have more than "
                f"{limits.pattern_bytes_max} parts",
                guard.span,
                hint="limit pattern_bytes_max; let fewer events be defined by others",
            )


def _measured(guard: syntax.Guard, known: _Measures) -> tuple[int, int]:
    """Return how many levels and parts a guard has with the events that it names."""
    inner = [known[guard.name]] if isinstance(guard, syntax.Name) else []
    inner += [_measured(c, known) for c in children(guard) if isinstance(c, syntax.Guard)]
    return 1 + max((levels for levels, _ in inner), default=0), 1 + sum(n for _, n in inner)
