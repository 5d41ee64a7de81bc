"""A real broker for all workers, and a real Spark for one of them.

A test that needs a broker alone runs on any worker, on the one broker of all. Tests that need what
workers do not share are a group of pytest-xdist for each such fixture (`OF_ONE_WORKER`), so that
one worker starts it. In CI a broker or a Spark that does not start is a failure; elsewhere it is a
skip that says why.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ketal.errors import KetalError
from ketal.streaming.broker.server import Broker
from ketal.streaming.jvm.artifacts import KAFKA, fetch_jars
from ketal.streaming.jvm.java import find_java, newest_for_spark, spark_home
from ketal.streaming.spark.session import connector_jars, remove_artifacts
from tests.sampling import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.streaming.secured import Secured

QUICK_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""A start costs half the processor time: code is optimised less, and the jars' is not verified."""
FRUGAL = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "metadata.max.idle.interval.ms": "0",
}
"""Fewer partitions of Kafka's own topics, which have 50 by default, all created and loaded at first
use; and no record written each half second while the broker is idle."""
QUICK_RETURN = {
    **FRUGAL,
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
"""For tests that kill a broker: it is back in 3.5 s instead of 12 s on a machine that is idle."""
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.{}CheckpointFileManager"
"""Spark's class for the files of checkpoints; by default it starts a process for each file."""
OF_ONE_WORKER = ("spark", "mortal_broker", "secured", "filled_topics", "browser")
"""Fixtures that each worker would have to make for itself."""
NICE = 10
"""The niceness of a worker outside of the groups."""
SPARK_TRIES = 3
IN_CI = os.environ.get("CI") == "true"
FIGURES = pytest.StashKey[Counter[str]]()
OF_GROUPS = pytest.StashKey[dict[str, Broker]]()
"""The brokers that one group of tests has for itself, by its name."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what needs a fixture of one worker into its group, before xdist looks.

    Groups come first, so that no worker ends alone; xdist runs the larger ones first, and else
    keeps this order. Modules that need a broker, which wait, stand between those that compute.
    """
    groups: dict[str, list[pytest.Item]] = {}
    waiting: dict[Path, list[pytest.Item]] = {}
    computing: dict[Path, list[pytest.Item]] = {}
    for item in items:
        group = _group_of(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
            groups.setdefault(group, []).append(item)
        else:
            waits = "jars" in getattr(item, "fixturenames", ())
            (waiting if waits else computing).setdefault(item.path, []).append(item)
    ahead, modules = list(waiting.values()), list(computing.values())
    between = max(1, len(modules) // (2 * len(ahead) + 1))
    spread = []
    while ahead or modules:
        spread += [*ahead[:1], *modules[:between]]
        del ahead[:1], modules[:between]
    items[:] = [item for some in (*groups.values(), *spread) for item in some]


def _group_of(item: pytest.Item) -> str | None:
    needed = getattr(item, "fixturenames", ())
    return next((name for name in OF_ONE_WORKER if name in needed), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of a worker that has left its group.

    The tests of a group run one after another, so the longest group would otherwise end last, when
    no other worker has tests left.
    """
    if "PYTEST_XDIST_WORKER" in os.environ and _group_of(item) is None:
        os.nice(max(0, NICE - os.nice(0)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the broker of a group after its last test: an idle broker takes processor time, too."""
    group = _group_of(item)
    if group is not None and (nextitem is None or _group_of(nextitem) != group):
        broker = item.config.stash.get(OF_GROUPS, {}).get(group)
        if broker is not None and broker.running() is not None:
            broker.stop()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Counter[str]:
    """Return the counters shared by all tests of faults; `make chaos` prints them at its end."""
    return request.config.stash.setdefault(FIGURES, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the fault counters of a `make chaos` run."""
    figures = terminalreporter.config.stash.get(FIGURES, Counter())
    if "KETAL_CHAOS" in os.environ and figures:
        terminalreporter.section("faults")
        for fault, number in figures.items():
            terminalreporter.write_line(f"{number:8,} {fault}")


@contextmanager
def required(resource: str, *faults: type[Exception]) -> Iterator[None]:
    """Re-raise faults in CI; elsewhere skip the test, naming what is missing and why."""
    expected: tuple[type[Exception], ...] = (KetalError, *faults)
    try:
        yield
    except expected as fault:
        if IN_CI:
            raise
        pytest.skip(f"no {resource}: {fault}")


@pytest.fixture(scope="session")
def jars() -> Path:
    """Return the folder of Kafka's jars; downloads them the first time."""
    with required("Kafka"):
        return fetch_jars(KAFKA, find_java())


@pytest.fixture(scope="session")
def broker(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return the broker shared by the tests of all workers, each of which creates its own topics.

    The first worker that needs it starts it, and the last one to end kills it: a worker that may
    use it holds a shared lock.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    one = Broker(folder / "kafka", properties=FRUGAL, jvm=QUICK_JVM)
    with open(folder / "starting", "w") as starting, open(folder / "users", "w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(starting, fcntl.LOCK_EX)
        if one.running() is None:
            with required("broker"):
                one.start()
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield one
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            one.kill()


@pytest.fixture(scope="session")
def _mortal_broker(
    jars: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("mortal") / "broker"
    with required("broker"), Broker(folder, properties=QUICK_RETURN, jvm=QUICK_JVM) as one:
        request.config.stash.setdefault(OF_GROUPS, {})["mortal_broker"] = one
        yield one
    assert one.running() is None


@pytest.fixture
def mortal_broker(_mortal_broker: Broker) -> Broker:
    """Return a broker that a test may kill, stop and start; the next test finds it running."""
    if _mortal_broker.running() is None:
        _mortal_broker.start()
    return _mortal_broker


@pytest.fixture(scope="session")
def secured(
    jars: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Return a broker with TLS, SASL and rights."""
    from tests.streaming.secured import secured_broker

    with required("broker"), secured_broker(tmp_path_factory.mktemp("secured") / "broker") as one:
        request.config.stash.setdefault(OF_GROUPS, {})["secured"] = one
        yield one


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Return a function that creates a topic with a new name and the given number of partitions."""
    return lambda partitions=1: make_topic(broker, partitions)


def make_topic(broker: Broker, partitions: int = 1, policy: str = "delete") -> str:
    from kafka import KafkaAdminClient

    name = f"topic-{uuid.uuid4().hex[:12]}"
    options = {"num_partitions": partitions, "configs": {"cleanup.policy": policy}}
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({name: options}, wait_for_metadata=True)
    return name


@pytest.fixture(scope="session")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the jars of Spark's Kafka connector; sets the Java that tests start Spark with.

    The Java options suit a process that does not live long.
    """
    # The default code cache of code that is optimised less would be full, and swept all the time.
    options = ("-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m", *QUICK_JVM)
    settings = tmp_path_factory.mktemp("spark-conf")
    (settings / "spark-defaults.conf").write_text(
        f"spark.driver.extraJavaOptions {' '.join(options)}\n"
    )
    with pytest.MonkeyPatch.context() as patch, required("Spark", ImportError):
        java = find_java(newest=newest_for_spark(version("pyspark")))
        patch.setenv("JAVA_HOME", str(spark_home(java)))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_CONF_DIR", str(settings))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield connector_jars(java)


@pytest.fixture(scope="session")
def spark(connector: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a Spark that runs as long as the tests, with the Kafka connector of its version."""
    import pyspark.errors

    folder = tmp_path_factory.mktemp("spark")
    with required("Spark", pyspark.errors.PySparkException):
        settings = {
            "spark.ui.enabled": "false",
            "spark.jars": connector,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            # Plans of a few rows are run once: to compile them takes longer than to interpret them.
            "spark.sql.codegen.wholeStage": sample("false", "true"),
            "spark.sql.codegen.factoryMode": sample("NO_CODEGEN", "FALLBACK"),
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS.format(
                sample("FileSystemBased", "FileContextBased")
            ),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        }
        session = _spark_session(settings)
        session.sparkContext.setLogLevel("ERROR")
        remove_artifacts(session)
        yield session
        session.stop()


def _spark_session(settings: dict[str, str]) -> Any:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("ketal tests").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    for left in reversed(range(SPARK_TRIES)):
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")
