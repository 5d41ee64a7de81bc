"""What `help(ketal)` shows: types."""

from __future__ import annotations

import inspect

from tests.public_names import hints, holds_any, public

PUBLIC = {one.name: one for one in public()}

JSON = "a JSON object"
VALUES = "values of attributes, of every class that an event takes, numpy's among them"
ANY = {
    "Event.data": VALUES,
    "Match.returns": VALUES,
    **{f"{name}.to_dict": JSON for name in PUBLIC if f"{name}.to_dict" in PUBLIC},
}
"""Where `Any` stays, and why."""


def test_any_stands_where_no_type_is_known() -> None:
    found = set()
    for name, one in PUBLIC.items():
        for parameter, annotation in hints(one).items():
            if holds_any(annotation):
                field = inspect.isclass(one.value)
                found.add(f"{name}.{parameter}" if field else name)
    assert found == set(ANY)
