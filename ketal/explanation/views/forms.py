"""The forms in which a view is written to a file, by how the file's name ends.

The one rule: a name that says no form takes the page, but one of a picture is refused.
"""

from __future__ import annotations

import os

from ketal.errors import SettingError

PAGE = "html"
FORMS = {PAGE: ".html", "svg": ".svg", "perfetto": ".json", "shiviz": ".log"}
"""Form → how the name of its file ends."""
_OTHER_PICTURES = (".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".ps", ".eps")
"""How the names of pictures end that ketal does not write."""


def refuse_other_pictures(suffix: str, instead: str) -> None:
    """Raise a SettingError where a name ends as that of a picture that ketal does not write."""
    if suffix in _OTHER_PICTURES:
        raise SettingError(f"pictures are not written as {suffix}; write {instead}")


def form_named(path: str) -> str:
    """Return the form that the name of a file says; the page where it says none.

    Raises
    ------
    SettingError
        If the name is that of a picture in another form.
    """
    suffix = os.path.splitext(path)[1].lower()
    refuse_other_pictures(suffix, "an .svg, or an .html page")
    return next((form for form, ending in FORMS.items() if ending == suffix), PAGE)
