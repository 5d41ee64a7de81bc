"""The folder of a job on Spark: on this machine, or on another file system that Hadoop supports.

A folder on this machine is locked as long as a job runs in it. The other file systems (`hdfs://`,
`s3a://` and so on) have no common kind of lock. There a job that begins writes its own name into
the folder; before each write it checks that name, and ends if a later job has replaced it.

The one rule: a file appears whole under its name, and is written by one process alone.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketal.errors import SettingError, refused_as_setting
from ketal.files.file_replacement import replace_file
from ketal.streaming.job.locks import FILE, lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER = "owner"
"""The file with the name of the process that began last."""


class LocalFolder:
    """A folder on this machine, locked for this process; made if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with refused_as_setting(f"cannot write {path}"):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / FILE, "ab")  # noqa: SIM115
        try:
            if not lock(self._lock.fileno(), path):
                raise SettingError(f"another process is running the job of {path}")
        except BaseException:
            self._lock.close()
            raise

    def __str__(self) -> str:
        return str(self._path)

    @property
    def address(self) -> str:
        """The folder as a URI: Spark would look for a bare path on the cluster's file system."""
        return f"file://{self._path.absolute()}"

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file; it is on the disk when this returns."""
        replace_file(self._path / name, content, durable=True)

    def names(self, name: str = "") -> list[str]:
        """Return the names in a subfolder, by default in this one; empty if it does not exist."""
        folder = self._path / name
        return [one.name for one in folder.iterdir()] if folder.is_dir() else []

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()


class HadoopFolder:
    """A folder on a file system of Hadoop; made if it does not exist, and taken over if it does.

    It is accessed through Hadoop's `FileContext` with the settings of the session, as Spark's own
    checkpoint is.
    """

    def __init__(self, session: SparkSession, address: str) -> None:
        self.address = address.rstrip("/")
        self._owner = uuid.uuid4().hex.encode()
        context: Any = session.sparkContext
        self._gateway, self._jvm = context._gateway, context._jvm
        self._hadoop = self._jvm.org.apache.hadoop.fs
        state: Any = session._jsparkSession.sessionState()
        with refused_as_setting(f"cannot write {self}"):
            with _as_os_error():
                uri = self._jvm.java.net.URI(self.address)
                self._files = self._hadoop.FileContext.getFileContext(uri, state.newHadoopConf())
                self._files.mkdir(self._path(), None, True)
            self._replace_file(OWNER, self._owner)

    def __str__(self) -> str:
        return self.address

    def _path(self, name: str = "") -> Any:
        return self._hadoop.Path(f"{self.address}/{name}")

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with _as_os_error():
            stream = self._files.open(self._path(name))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file; raise a SettingError if another process has taken the folder over."""
        if self.read(OWNER) != self._owner:
            raise SettingError(f"another process, started later, is running the job of {self}")
        self._replace_file(name, content)

    def _replace_file(self, name: str, content: bytes) -> None:
        """Write a temporary file, and rename it to `name`, which replaces an existing file."""
        flags = self._hadoop.CreateFlag
        create = self._jvm.java.util.EnumSet.of(flags.CREATE, flags.OVERWRITE)
        rename = getattr(self._hadoop, "Options$Rename")
        over = self._gateway.new_array(rename, 1)
        over[0] = rename.OVERWRITE
        none = self._gateway.new_array(getattr(self._hadoop, "Options$CreateOpts"), 0)
        beside = self._path(f".{name}-{self._owner.decode()}")
        with _as_os_error():
            stream = self._files.create(beside, create, none)
            try:
                stream.write(content)
                stream.hsync()
            finally:
                stream.close()
            self._files.rename(beside, self._path(name), over)

    def names(self, name: str = "") -> list[str]:
        """Return the names in a subfolder, by default in this one; empty if it does not exist."""
        try:
            with _as_os_error():
                statuses = self._files.util().listStatus(self._path(name))
                return [one.getPath().getName() for one in statuses]
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Do nothing: the next process takes the folder over."""


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Convert exceptions of Hadoop to an OSError."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as fault:
        thrown = fault.java_exception
        missing = thrown.getClass().getSimpleName() == "FileNotFoundException"
        kind = FileNotFoundError if missing else OSError
        raise kind(str(thrown.toString()).splitlines()[0]) from None
