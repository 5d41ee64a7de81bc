"""The Spark session that a job runs on.

Under `spark-submit`, or if the process has a Spark already, the job uses that Spark, in its own
session with its own settings for streaming. Otherwise it starts a Spark in this process, with all
cores, the Kafka connector for the installed pyspark, the Java that `ketal.streaming.jvm.java`
finds, and the log level error. The jars are downloaded like those of the broker, and not by Spark,
which would log a hundred lines about them at each start.

The one rule: nothing of a user's session is changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketal.errors import LostError
from ketal.files.file_replacement import replace_file
from ketal.files.user_folders import cache_folder
from ketal.streaming.job.file import Job
from ketal.streaming.jvm.artifacts import fetch_jars, spark_connector
from ketal.streaming.jvm.java import Java, find_java, newest_for_spark, spark_home

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A job needs the last batches only; Spark would keep 100.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.session.timeZone": "UTC",
}
_OWN_SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
# Without this the gateway would set its own log level, and print that it did.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_SUBMIT_VARIABLE = "PYSPARK_GATEWAY_PORT"


def spark_session(job: Job, notify: Callable[[str], None]) -> tuple[SparkSession, bool]:
    """Return a session for a job, and whether its Spark was started for the job.

    Raises
    ------
    JavaError
        If there is no Java for it.
    ArtifactsError
        If the Kafka connector cannot be downloaded.
    LostError
        If Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    # Not the active session, which belongs to a thread: a process has one context.
    own = SparkContext._active_spark_context is None and _SUBMIT_VARIABLE not in os.environ
    settings = _own_settings(job, notify) if own else None
    try:
        with _interrupts_kept():
            context = SparkContext.getOrCreate(settings)
        session = SparkSession.builder.getOrCreate()
        if own:
            remove_artifacts(session)
        else:
            session = session.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        # A query with a checkpoint keeps the number of its first start.
        session.conf.set("spark.sql.shuffle.partitions", str(context.defaultParallelism))
    except (Py4JError, ConnectionError, PySparkRuntimeError) as fault:
        # The JVM may end before it has answered the first call.
        raise LostError(f"Spark did not start: {fault or type(fault).__name__}") from None
    return session, own


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Keep the handler of Ctrl-C, which pyspark replaces by its own when it makes a context.

    Its own cancels the batch that runs, and breaks the call to Spark that is open.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def connector_jars(java: Java, notify: Callable[[str], None] = lambda _: None) -> str:
    """Return the jars of the Kafka connector for the installed pyspark, as for `spark.jars`."""
    folder = fetch_jars(spark_connector(version("pyspark")), java, notify=notify)
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


def _own_settings(job: Job, notify: Callable[[str], None]) -> SparkConf:
    """Return the settings of a Spark in this process; sets the Java and the Python that it uses."""
    from pyspark import SparkConf

    java = find_java(newest=newest_for_spark(version("pyspark")))
    logging = cache_folder() / "spark-log4j2.properties"
    replace_file(logging, LOGGING.encode("ascii"))
    os.environ["JAVA_HOME"] = str(spark_home(java))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        **_OWN_SPARK,
        "spark.app.name": f"ketal {job.group_id}",
        "spark.master": "local[*]",
        "spark.jars": ",".join(map(str, job.jars)) or connector_jars(java, notify),
        # The default options come before the user's own, which so override them.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
    }
    return SparkConf().setAll(list(settings.items()))


def remove_artifacts(session: SparkSession) -> None:
    """Remove the folder for artifacts that Spark 4.0.0 makes in the working directory.

    No setting moves the folder (SPARK-52396; later versions make it among the temporary files), and
    it stays when the driver ends. It is empty, and Spark makes it again when it needs it.
    """
    from py4j.protocol import Py4JError

    jvm: Any = session.sparkContext._jvm
    try:
        manager = getattr(jvm.org.apache.spark.sql.artifact, "ArtifactManager$")
        folder = Path(getattr(manager, "MODULE$").artifactRootDirectory().toString())
    except (Py4JError, TypeError):
        return  # Another version of Spark, which has the folder elsewhere.
    if folder.parent == Path("artifacts").absolute():
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
