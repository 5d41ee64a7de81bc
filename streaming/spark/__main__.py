"""`python -m ketal.streaming.spark FILE.zip`: the package as an archive for Spark's executors.

`spark-submit --py-files` takes an archive. In a checkout some packages are beside the folder
`ketal`, which has links to them, and archivers leave links out; here each module is written under
the name that it is imported by. Compiled dependencies (msgspec, google-re2) cannot be sent in an
archive: they must be installed where the executors run. If ketal itself is compiled, the archive
has its source.

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
"""The time of every file, fixed so that the same package always gives the same archive."""


def write_package(path: str | os.PathLike[str]) -> int:
    """Write the package as a zip archive; return the number of files in it."""
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
