"""The forms in which a view is written to a file, by how the file's name ends.

The one rule: a name that says no form takes the page.
"""

from __future__ import annotations

import os

PAGE = "html"
FORMS = {PAGE: ".html", "svg": ".svg", "perfetto": ".json", "shiviz": ".log"}
"""Form → how the name of its file ends."""


def form_named(path: str) -> str:
    """Return the form that the name of a file says; the page where it says none."""
    suffix = os.path.splitext(path)[1].lower()
    return next((form for form, ending in FORMS.items() if ending == suffix), PAGE)
