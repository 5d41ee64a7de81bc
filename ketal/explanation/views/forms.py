"""The forms in which a view is written to a file, by how the file's name ends.

The one rule: a name that says no form takes the page, but one of a picture is refused.
"""

from __future__ import annotations

import os

from ketal.errors import SettingError

PAGE = "html"
FORMS = {PAGE: ".html", "svg": ".svg", "perfetto": ".json", "shiviz": ".log"}
"""Form → how the name of its file ends."""
OTHER_PICTURES = (".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".ps", ".eps")
"""How the names of pictures end that ketal does not write."""


def form_named(path: str) -> str:
    """Return the form that the name of a file says; the page where it says none.

    Raises
    ------
    SettingError
        If the name is that of a picture in another form.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix in OTHER_PICTURES:
        raise SettingError(f"pictures are not written as {suffix}; write an .svg, or an .html page")
    return next((form for form, ending in FORMS.items() if ending == suffix), PAGE)
