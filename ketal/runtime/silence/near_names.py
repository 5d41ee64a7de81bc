"""The name in a log that a misspelt name of a pattern most likely means.

In a misspelling one or two letters are replaced, deleted, inserted or transposed (Damerau, "A
technique for computer detection and correction of spelling errors", 1964); or the separators
between words differ, or the case, or leading parts of a dotted name are missing. Names that differ
only in digits (`n1`, `n2`) name different things.

The one rule: a name in the log that the pattern itself uses is never proposed for another name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from ketal.compiler.counted.named_values import NamedValue
from ketal.model.syntax import EVENT_FIELDS

SHOWN_MAX = 3
"""The most names of the log that a message or a hint lists if none is near."""
_ONE_FAULT_CHARS = 4
"""Characters of a name for each fault that is allowed in it; two faults at most."""
_FAR = 99
"""More faults than any near name has."""


def nearest(
    name: NamedValue,
    known: Mapping[str, int],
    pattern: Iterable[NamedValue],
    *,
    loose: bool = False,
) -> str | None:
    """Return the name in a log that is nearest to a name that no event has; None if none is near.

    `known` are the names of the log, with how many events have each; those that one of the names of
    the pattern fits are not proposed. A dotted glob is compared part by part, without the parts
    that have `*`; no name is near any other glob. If `loose`, since an error is certain, a name
    that is only similar is returned rather than none.
    """
    if name.glob == "plain" and any(sign in name.name for sign in "*?"):
        return None
    kinds = {"attribute", "partition"} if name.path else {name.what}
    named = [one for one in pattern if one.what in kinds]
    names, globs = {one.name for one in named}, [one.matcher() for one in named if one.glob]
    others = [one for one in known if one not in names and not any(fits(one) for fits in globs)]
    faults = {one: _faults(name.name, one, glob=name.glob == "dotted") for one in others}
    near = [one for one, number in faults.items() if number < _FAR]
    if near:
        return min(near, key=lambda one: (faults[one], -known[one], one))
    similar = difflib.get_close_matches(name.name, others, 1) if loose else []
    return similar[0] if similar else None


def own_field_note(name: NamedValue) -> str:
    """Return how the event's own field is written if an attribute has its name; else nothing."""
    if name.path != (name.name,) or name.name not in EVENT_FIELDS:
        return ""
    return f"`data.{name.name}` is an attribute, `{name.name}` the event's own field"


def _faults(name: str, known: str, *, glob: bool) -> int:
    """Return how many faults turn one name into the other; `_FAR` for too many."""
    if glob and "*" in name:
        parts, others = name.split("."), known.split(".")
        if ".." in name or len(parts) != len(others):
            return _FAR
        pairs = [(a, b) for a, b in zip(parts, others, strict=True) if "*" not in a]
        name, known = (".".join(part) for part in zip(*pairs, strict=True)) if pairs else ("", "")
    if _letters(name) == _letters(known) and _letters(name):
        return 0
    short, long = sorted((name, known), key=len)
    if "." in long and long.endswith(f".{short}") and len(short) >= _ONE_FAULT_CHARS:
        return 1
    most = min(len(short) // _ONE_FAULT_CHARS, 2)
    if len(long) - len(short) > most or _without_digits(name) == _without_digits(known):
        return _FAR
    return _edits(name, known, most)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _without_digits(name: str) -> str:
    return re.sub(r"\d+", "", name)


def _edits(one: str, other: str, most: int) -> int:
    """Return the optimal string alignment distance; `_FAR` where it is more than `most`."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            least = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                least = min(least, rows[-2][j - 2] + 1)
            row.append(least)
        rows.append(row)
        # Each row is computed from the two rows before it.
        if min(map(min, rows[-2:])) > most:
            return _FAR
    return rows[-1][-1] if rows[-1][-1] <= most else _FAR
