"""`python -m ketal.streaming.spark FILE.zip`: the package as executors take it.

`spark-submit --py-files` wants one archive. A checkout has its rooms beside the package, behind
links, which archivers leave out; here each module is under the name that it is imported by. What is
compiled (msgspec, google-re2) cannot travel so: it is installed where the executors run. Of a ketal
that is compiled itself the source travels.

The one rule: the archive holds what `import ketal` would find here, and nothing else.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import ketal

_SUFFIXES = (".py", ".lark", ".typed")
_ALWAYS_S = (1980, 1, 1, 0, 0, 0)
"""The time of every file: the same package is the same archive."""


def write_package(path: str | os.PathLike[str]) -> int:
    """Write the package as a zip archive; return how many files it has."""
    (home,) = ketal.__path__
    files = sorted(
        Path(at, name)
        for at, folders, names in os.walk(home, followlinks=True)
        for name in names
        if name.endswith(_SUFFIXES) and "__pycache__" not in at
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in files:
            name = Path("ketal") / one.relative_to(home)
            archive.writestr(zipfile.ZipInfo(str(name), _ALWAYS_S), one.read_bytes())
    return len(files)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".zip"):
        sys.exit("usage: python -m ketal.streaming.spark FILE.zip")
    print(f"{sys.argv[1]}: {write_package(sys.argv[1])} files")
