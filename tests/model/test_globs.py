"""Globs of `call`: the compiled form against the definition in the oracle."""

from __future__ import annotations

from itertools import product

from ketal.model import syntax
from ketal.model.events.event import Event
from ketal.model.values import glob_regex
from ketal.semantics import Guards


def test_targets_match_as_the_oracle_defines() -> None:
    """Types may have empty parts, as `a..b`; the number of parts that `..` stands for is any."""
    guards = Guards({}, {}, {})
    types = ["".join(one) for length in range(1, 5) for one in product("ab.", repeat=length)]
    globs = {
        "".join(one)
        for length in range(1, 4)
        for one in product(("a", ".", "..", "*"), repeat=length)
    }
    differing = [
        (glob, event.type)
        for glob in sorted(globs)
        for event in (Event("n", one, {"n": 1}) for one in types)
        if (glob_regex(glob, dotted=True).fullmatch(event.type) is not None)
        is not guards.truth(syntax.Call("*", glob, ("..",)), guards.moment(event, (), None))
    ]
    assert differing == []
