"""Words that messages of several packages have in common.

The one rule: a number is written with its noun, and text of unknown length is cut.
"""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things in words: `1 match`, `2,000 matches`.

    Parameters
    ----------
    number : int
        How many.
    noun : str
        What one of them is called.
    plural : str
        What several are called, if not the noun with an `s`.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, length: int = 60) -> str:
    """Return text, cut off if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"
