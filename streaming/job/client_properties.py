"""The table `[kafka.properties]` of a job file, with values from the environment.

The one rule: `${NAME}` stands for an environment variable in this table only, and its value is
never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ketal.errors import SettingError

FILES = ("ssl_cafile", "ssl_certfile", "ssl_crlfile", "ssl_keyfile")
"""Properties that are paths, relative to the folder of the job file."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def read_properties(table: object, base: Path) -> dict[str, Any]:
    """Return the properties, with the values of environment variables, and paths below `base`."""
    if not isinstance(table, dict):
        raise SettingError("kafka.properties must be a table: write [kafka.properties]")
    out: dict[str, Any] = {}
    for name, value in _dotted_items(table):
        place = f"[kafka.properties] {name}"
        if not isinstance(value, str | int | float | bool):
            raise SettingError(f"{place} must be a string, a number or a boolean")
        if isinstance(value, str):
            for variable in _VARIABLE.findall(value):
                if variable not in os.environ:
                    raise SettingError(f"{place}: the environment variable {variable!r} is not set")
            value = _VARIABLE.sub(lambda match: os.environ[match[1]], value)
            if value and name in FILES:
                value = str(base / value)
        out[name] = value
    return out


def refuse_variables(value: object, keys: tuple[str, ...] = ()) -> None:
    """Raise a SettingError for `${NAME}` outside of `[kafka.properties]`."""
    if keys[:2] == ("kafka", "properties"):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_variables(inner, (*keys, str(key)))
    elif isinstance(value, str) and _VARIABLE.search(value):
        raise SettingError(
            f"{'.'.join(keys)}: ${{NAME}} is replaced from the environment only in "
            "[kafka.properties]"
        )


def _dotted_items(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys with their values: TOML reads `a.b = 1` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _dotted_items(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
