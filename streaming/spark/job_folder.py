"""The folder of a job on Spark: on this machine, or on a file system that Spark knows.

A folder on this machine is locked as long as a job runs in it. Other file systems (`hdfs://`,
`s3a://`, whatever Hadoop has a class for) have no locks that all of them share. There the job that
begins last writes its name into the folder, and one that finds another name before it writes ends.

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
    """A folder of this machine, for this process alone; made if it is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with refused_as_setting(f"cannot write {path}"):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / FILE, "ab")  # noqa: SIM115
        try:
            if not lock(self._lock.fileno(), path):
                raise SettingError(f"another process runs the job of {path}")
        except BaseException:
            self._lock.close()
            raise

    def __str__(self) -> str:
        return str(self._path)

    @property
    def address(self) -> str:
        """The folder as a URI: a path alone would be one of the cluster's file system."""
        return f"file://{self._path.absolute()}"

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole; it is on the disk when this returns."""
        replace_file(self._path / name, content, durable=True)

    def names(self, name: str = "") -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        folder = self._path / name
        return [one.name for one in folder.iterdir()] if folder.is_dir() else []

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()


class HadoopFolder:
    """A folder of a file system that Hadoop knows; made if it is not there, and taken over.

    It goes through Hadoop's `FileContext`, as Spark's own checkpoint does, with its settings.
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
            self._put(OWNER, self._owner)

    def __str__(self) -> str:
        return self.address

    def _path(self, name: str = "") -> Any:
        return self._hadoop.Path(f"{self.address}/{name}")

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        with _as_os_error():
            stream = self._files.open(self._path(name))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole; raise a SettingError if another process has taken the folder over."""
        if self.read(OWNER) != self._owner:
            raise SettingError(f"another process runs the job of {self}, and began later")
        self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        """Write a temporary file, and rename it over one that may exist."""
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
        """Return the names in a folder; none if it does not exist."""
        try:
            with _as_os_error():
                statuses = self._files.util().listStatus(self._path(name))
                return [one.getPath().getName() for one in statuses]
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Do nothing: the process that begins next takes the folder over."""


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise what Hadoop throws as an OSError."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as fault:
        thrown = fault.java_exception
        missing = thrown.getClass().getSimpleName() == "FileNotFoundException"
        kind = FileNotFoundError if missing else OSError
        raise kind(str(thrown.toString()).splitlines()[0]) from None
