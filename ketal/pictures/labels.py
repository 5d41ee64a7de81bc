"""The texts of pictures: labels broken into lines, and text made fit for XML.

A guard is code, so it is set in a fixed-width font, in which the width of a line is its number of
columns and no font metrics are needed.

The one rule: a line breaks before `&&` and `||` if possible, otherwise at a blank, and inside a
word only if the word is longer than a line. Text cut from a label is replaced by an ellipsis.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from ketal.errors import columns, printable
from ketal.model.wording import divided

LABEL_COLUMNS_MAX = 34
LABEL_LINES_MAX = 12
NAME_COLUMNS_MAX = 24
ELLIPSIS = "…"
INDENT = "  "
_DIGITS = re.compile("[0-9]+")

# Quoted strings are kept whole, so lines do not break at an operator inside one.
_PARTS = re.compile(r'\s*(?:"(?:\\.|[^"\\])*"|\S)+')


def xml_text(text: str) -> str:
    """Return a text on one line, with every character that does not print escaped.

    XML cannot represent some of these; others, such as those that change the direction of writing,
    would reorder the text beside them.
    """
    return printable(re.sub(r"[\t\n\r\u2028\u2029\x85]", " ", text))


def short_label(text: str, columns_max: int = NAME_COLUMNS_MAX) -> str:
    """Return `xml_text`, with its middle replaced by an ellipsis beyond `columns_max`.

    The end is kept, as names with a common beginning, such as those of nodes, differ there.
    """
    text = xml_text(text)
    if columns(text) <= columns_max:
        return text
    head = (columns_max - 2) // 2
    end = divided(text[::-1], columns_max - 1 - head)[0][::-1]
    return divided(text, head)[0] + ELLIPSIS + end


def common_end(names: Sequence[str]) -> str:
    """Return the end that all names share, from a sign that is no letter or digit; perhaps empty.

    It is shorter than each name.
    """
    if len(names) < 2:
        return ""
    back = [name[::-1] for name in names]
    pairs = zip(min(back), max(back), strict=False)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    shared = "".join(sign for sign, _ in alike)[: min(map(len, names)) - 1]
    return re.sub(r"^[^\W_]+", "", shared[::-1])


def in_natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted, with the numbers in them by value: `n2` comes before `n10`."""
    return sorted(names, key=lambda name: (_DIGITS.sub(_padded, name), name))


def _padded(digits: re.Match[str]) -> str:
    return digits[0].zfill(20)


def node_labels(nodes: Sequence[str], columns_max: int) -> list[str]:
    """Return the names of all nodes of a picture, each as a label of at most `columns_max`.

    Of a longer name the end that all share is cut and only then the middle, so that hosts of one
    domain are distinct.
    """
    end = common_end(nodes)
    labels = []
    for node in nodes:
        text = xml_text(node)
        if end and columns(text) > columns_max:
            text = xml_text(node.removesuffix(end))
            text += ELLIPSIS * (columns(text) < columns_max)
        labels.append(short_label(text, columns_max))
    return labels


def wrapped(label: Iterable[str]) -> tuple[str, ...]:
    """Return a label as lines of at most `LABEL_COLUMNS_MAX` columns."""
    columns_max = LABEL_COLUMNS_MAX * LABEL_LINES_MAX
    lines = [
        line
        for entry in itertools.islice(label, LABEL_LINES_MAX + 1)
        for line in _wrap(short_label(entry, columns_max))
    ]
    if len(lines) > LABEL_LINES_MAX:
        lines[LABEL_LINES_MAX - 1 :] = [ELLIPSIS]
    return tuple(lines)


def _wrap(text: str) -> list[str]:
    if columns(text) <= LABEL_COLUMNS_MAX:
        return [text]
    lines = [""]
    for clause in _clauses(text):
        if columns(lines[-1] + clause) <= LABEL_COLUMNS_MAX:
            lines[-1] += clause
        elif columns(INDENT + clause.strip()) <= LABEL_COLUMNS_MAX:
            lines.append(INDENT + clause.strip())
        else:
            if lines[-1]:
                lines.append(INDENT)
            for part in _PARTS.findall(clause):
                _append_word(lines, part)
    return [line for line in lines if line.strip()]


def _clauses(text: str) -> list[str]:
    """Split before each `&&` and `||`."""
    clauses = [""]
    for part in _PARTS.findall(text):
        if part.strip() in ("&&", "||"):
            clauses.append("")
        clauses[-1] += part
    return clauses


def _append_word(lines: list[str], part: str) -> None:
    """Append a word to the last line, or to lines of its own."""
    if lines[-1] == INDENT:
        part = part.lstrip()
    if columns(lines[-1] + part) <= LABEL_COLUMNS_MAX:
        lines[-1] += part
        return
    rest = part.strip()
    while rest:
        line, after = divided(rest, LABEL_COLUMNS_MAX - len(INDENT))
        blank = line.rfind(" ") + 1
        if after and blank > len(line) // 2:
            line, after = rest[:blank], rest[blank:]
        lines.append(INDENT + line)
        rest = after
