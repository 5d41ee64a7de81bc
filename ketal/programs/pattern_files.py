"""Pattern files: UTF-8 text of bounded length.

The one rule: what cannot be read as such is refused before it is parsed.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import IO

from ketal.analysis.parameters import ParamValue
from ketal.errors import SettingError, wrong_type
from ketal.model.limits import DEFAULT, Limits
from ketal.model.wording import shortened
from ketal.programs.compiling import compile
from ketal.programs.program import Program


def load(
    path: str | os.PathLike[str] | IO[str] | IO[bytes],
    *,
    limits: Limits | None = None,
    **params: ParamValue,
) -> Program:
    """Compile a pattern file, given its path or the open file.

    Parameters
    ----------
    path : path or file
        UTF-8 text.
    limits : Limits, optional
        Other limits than the defaults; `pattern_bytes_max` bounds the file.
    **params
        As for `compile`.

    Raises
    ------
    PatternError
        If anything is wrong with the text.
    SettingError
        If the file cannot be read, or a parameter is wrong.
    TypeError
        If an argument is of another class than it must be.

    Examples
    --------
    >>> import ketal
    >>> from pathlib import Path
    >>> text = 'pattern One { event A = type == "a"; check A*; }'
    >>> count = Path("one.ketal").write_text(text)
    >>> ketal.load("one.ketal").names
    ('One',)
    """
    limits = Limits.given(limits)
    if isinstance(path, str | os.PathLike):
        text, name = read_pattern(path, limits), str(path)
    elif hasattr(path, "read"):
        name = str(getattr(path, "name", "<file>"))
        read = path.read()
        what = f"pattern file {name}"
        text = decoded_pattern(read, what, limits) if isinstance(read, bytes) else read
    else:
        raise wrong_type("path", "a path or an open file", path)
    return compile(text, name=name, limits=limits, **params)


def read_pattern(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> str:
    """Return the text of a pattern file.

    Raises
    ------
    SettingError
        If it cannot be read, is no UTF-8, or is longer than `pattern_bytes_max`.
    """
    if not os.fspath(path):
        # A Path would be the current folder.
        raise SettingError("the name of the pattern file is empty")
    try:
        with Path(path).open("rb") as file:
            raw = file.read(limits.pattern_bytes_max + 1)
    except OSError as error:
        if "{" in str(path):
            text = shortened(" ".join(str(path).split()))
            raise SettingError(
                f"{text!r} is no file; the text of a pattern is for ketal.compile"
            ) from None
        raise SettingError(f"cannot read pattern file {path}: {error.strerror}") from None
    return decoded_pattern(raw, f"pattern file {path}", limits)


def decoded_pattern(raw: bytes, name: str, limits: Limits) -> str:
    """Return the text of a pattern file, of which a byte beyond the limit is enough.

    Raises
    ------
    SettingError
        If it is no UTF-8, or longer than `pattern_bytes_max`.
    """
    if len(raw) > limits.pattern_bytes_max:
        raise SettingError(
            f"{name} is longer than {limits.pattern_bytes_max} bytes (limit pattern_bytes_max)"
        )
    # Without a byte order mark UTF-16 is UTF-8 too: the language's own characters and zeros.
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:2]:
        known = "UTF-32" if b"\0\0" in raw[:4] else "UTF-16"
        raise SettingError(
            f"{name} is {known}; save it as UTF-8 (`iconv -f {known} -t UTF-8 FILE`)"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        line = raw.count(b"\n", 0, begin) + 1
        raise SettingError(
            f"{name} is no UTF-8 at line {line}, byte {error.start - begin + 1}; save it as UTF-8"
        ) from None
