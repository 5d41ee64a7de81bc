"""Files that appear whole under their name or not at all, and the error where one is refused.

The one rule: what has a file's name is whole.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ketal.errors import SettingError


def replaced(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a file whole, in the place of one that may be there.

    A `durable` one is on the disk when this returns, its name too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
        if durable:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def refused_as_setting(what: object) -> Iterator[None]:
    """Raise a SettingError for an OSError: what cannot be used, or done, and why."""
    try:
        yield
    except OSError as fault:
        raise SettingError(f"{what}: {fault.strerror or fault}") from None
