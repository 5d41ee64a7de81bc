"""The forms in which a view is written to a file, by the suffix of the file's name.

The one rule: an unknown suffix selects the page, unless it is that of another picture format, which
is refused.
"""

from __future__ import annotations

import os

from ketal.errors import SettingError

PAGE = "html"
FORMS = {PAGE: ".html", "svg": ".svg", "perfetto": ".json", "shiviz": ".log"}
"""Form → the suffix of its files."""
_OTHER_PICTURES = (".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".ps", ".eps")
"""The suffixes of picture formats that ketal does not write."""


def refuse_other_pictures(suffix: str, instead: str) -> None:
    """Raise a SettingError for the suffix of a picture format that ketal does not write."""
    if suffix in _OTHER_PICTURES:
        raise SettingError(f"cannot write a {suffix} picture; write {instead}")


def form_for_path(path: str) -> str:
    """Return the form that the suffix of a file's name selects; the page if it selects none.

    The suffix of another picture format is a SettingError.
    """
    suffix = os.path.splitext(path)[1].lower()
    refuse_other_pictures(suffix, "an .svg or an .html page")
    return next((form for form, ending in FORMS.items() if ending == suffix), PAGE)
