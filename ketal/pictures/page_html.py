"""The page of a space-time diagram: one self-contained HTML file.

Markup, style and script are files of `ketal.pictures.page`, combined with the data.

The one rule: text of a log is data of the page, and never markup. Format characters in it, such as
those that change the direction of writing, are shown as escapes.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import unicodedata
from html import escape
from typing import Any

from ketal.errors import printable

_ESCAPE = re.compile(r"(\\ud[89ab]..\\ud[c-f]..|\\u....)|\\.")
_SCRIPTS = ("execution.js", "guards.js", "diagram.js", "automaton.js", "panel.js")


def page_html(title: str, data: dict[str, Any]) -> str:
    """Return the page; `page/panel.js` reads the data."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    text = _ESCAPE.sub(_show_format_character, text)
    parts = {
        "title": escape(printable(title)),
        "style": _read_part("style.css"),
        "script": "\n".join(map(_read_part, _SCRIPTS)),
        # Only these characters could end a script element, or begin a comment in it.
        "data": text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    }
    return re.sub(r"{{(\w+)}}", lambda name: parts[name[1]], _read_part("page.html"))


def _show_format_character(escape: re.Match[str]) -> str:
    """Return an escape of JSON; for a format character, escape its backslashes to show it."""
    code = escape[1]
    if code is None:
        return escape[0]
    units = bytes.fromhex(code.replace("\\u", ""))  # two for a character beyond U+FFFF
    is_format = unicodedata.category(units.decode("utf-16-be", "surrogatepass")) == "Cf"
    return code.replace("\\", r"\\") if is_format else code


def _read_part(name: str) -> str:
    return (importlib.resources.files("ketal.pictures.page") / name).read_text(encoding="utf-8")
