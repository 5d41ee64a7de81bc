"""The page of a space-time diagram: one self-contained HTML file.

Markup, style and script are files of `ketal.pictures.page`, combined with the data.

The one rule: text of a log is data of the page, in ASCII, and never markup. Format characters in
it, such as those that change the direction of writing, are escaped where they are shown
(`printable` of `execution.js`).
"""

from __future__ import annotations

import importlib.resources
import json
import re
from html import escape
from typing import Any

from ketal.errors import printable

_SCRIPTS = ("execution.js", "guards.js", "diagram.js", "automaton.js", "panel.js")


def page_html(title: str, data: dict[str, Any]) -> str:
    """Return the page; `page/panel.js` reads the data."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    parts = {
        "title": escape(printable(title)),
        "style": _read_part("style.css"),
        "script": "\n".join(map(_read_part, _SCRIPTS)),
        # Only these characters could end a script element, or begin a comment in it.
        "data": text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    }
    return re.sub(r"{{(\w+)}}", lambda name: parts[name[1]], _read_part("page.html"))


def _read_part(name: str) -> str:
    return (importlib.resources.files("ketal.pictures.page") / name).read_text(encoding="utf-8")
