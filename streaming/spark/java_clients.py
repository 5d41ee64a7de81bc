"""Kafka's Java clients, through which Spark reads and writes: their properties, and their topics.

A job file is the same for both engines, so `[kafka.properties]` has kafka-python's names for Spark
too; they are translated here to the names of Java's clients. A name with a dot is Java's already.

The one rule: a property that a Java client would refuse is refused before a query is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketal.errors import LostError, SettingError, refused_as_setting
from ketal.model.wording import unquoted
from ketal.streaming.job.file import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUEST_MS_MAX = 30_000
"""The default timeout of a request in Java's clients."""
_SASL = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_RENAMED = ("client_id", "fetch_max_bytes", "fetch_max_wait_ms", "fetch_min_bytes",
            "max_partition_fetch_bytes", "request_timeout_ms", "sasl_mechanism",
            "security_protocol")  # fmt: skip
"""Properties that Java's clients have under the same name, with `.` for `_`."""


def kafka_options(job: Job) -> dict[str, str]:
    """Return the options of Spark's connector: the servers, the job's properties, and timeouts.

    The options may hold passwords, as the properties do. A timeout among the properties overrides
    that of the job.

    Raises a SettingError if a property is one that Java's clients do not have.
    """
    given = dict(job.properties)
    out = {"bootstrap.servers": job.bootstrap_servers}
    user, password = given.pop("sasl_plain_username", None), given.pop("sasl_plain_password", None)
    if user is not None or password is not None:
        mechanism = str(given.get("sasl_mechanism", "PLAIN"))
        if mechanism not in _SASL:
            raise SettingError(
                f"[kafka.properties] sasl_mechanism {mechanism} does not take a password"
            )
        out["sasl.jaas.config"] = (
            f"{_SASL[mechanism]} required username={_jaas_string(user)} "
            f"password={_jaas_string(password)};"
        )
    out |= _pop_certificates(given)
    for name, value in given.items():
        if "." not in name and name not in _RENAMED:
            raise SettingError(
                f"[kafka.properties] unknown property {name!r} for the engine spark; choose from "
                f"{', '.join(sorted([*_RENAMED, 'sasl_plain_username', 'sasl_plain_password']))}, "
                "ssl_cafile, ssl_certfile, ssl_keyfile, and Java's own names, which have a dot"
            )
        out[name.replace("_", ".") if name in _RENAMED else name] = unquoted(value)
    request_ms = out.setdefault("request.timeout.ms", str(min(job.call_timeout_ms, REQUEST_MS_MAX)))
    # A call consists of requests, and Java's clients refuse a timeout of calls that is shorter than
    # that of requests. A value that is not a number is left for them to refuse.
    least_ms = int(request_ms) if request_ms.isdecimal() else 0
    call_ms = str(max(job.call_timeout_ms, least_ms))
    out = {"default.api.timeout.ms": call_ms, "max.block.ms": call_ms, **out}
    return {f"kafka.{name}": value for name, value in out.items()}


def _pop_certificates(given: dict[str, Any]) -> dict[str, str]:
    """Remove the files of certificates from `given`; return Java's properties for them."""
    out: dict[str, str] = {}
    if "ssl_cafile" in given:
        cafile = str(given.pop("ssl_cafile"))
        out |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": cafile}
    if "ssl_certfile" in given or "ssl_keyfile" in given:
        paths = [given.pop(name) for name in ("ssl_keyfile", "ssl_certfile") if name in given]
        texts = [_pem_text(str(path)) for path in paths]
        out |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": texts[0],
            "ssl.keystore.certificate.chain": texts[-1],
        }
    return out


def _pem_text(path: str) -> str:
    refusal = f"[kafka.properties] cannot read {path}"
    with refused_as_setting(refusal):
        try:
            return Path(path).read_text("utf-8")
        except ValueError:
            raise SettingError(f"{refusal}: it is not PEM text") from None


def _jaas_string(text: Any) -> str:
    """Return a text as a quoted string of a JAAS configuration."""
    return '"' + str(text or "").replace("\\", "\\\\").replace('"', '\\"') + '"'


def partition_counts(session: SparkSession, job: Job, options: Mapping[str, str]) -> dict[str, int]:
    """Return the number of partitions of each topic of a job, including its outputs.

    It calls Kafka's own client in Spark's JVM.

    Raises
    ------
    SettingError
        If a topic does not exist, or a property is wrong.
    LostError
        If Kafka does not answer, or Spark has no Kafka connector.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    context = session.sparkContext
    jvm: Any = context._jvm
    topics = [*job.topics, *job.output_topics]
    given = jvm.java.util.Properties()
    for name, value in options.items():
        given.setProperty(name.removeprefix("kafka."), value)
    out: dict[str, int] = {}
    try:
        admin = _admin_client(context, given)
        try:
            described = admin.describeTopics(jvm.java.util.ArrayList(topics)).topicNameValues()
            for topic in topics:
                out[topic] = described.get(topic).get().partitions().size()
        finally:
            admin.close()
    except Py4JJavaError as fault:
        reason = str(fault.java_exception.toString())
        if "UnknownTopicOrPartition" in reason:
            raise SettingError(
                f"the topic {topic} does not exist at {job.bootstrap_servers}; create it first"
            ) from None
        if "ConfigException" in reason or "Authentication" in reason or "Authorization" in reason:
            raise SettingError(f"[kafka.properties] {reason}") from None
        raise LostError(f"Kafka at {job.bootstrap_servers} does not answer: {reason}") from None
    except Py4JError as fault:
        raise LostError(f"Spark has no Kafka connector: {fault}") from None
    return out


def _admin_client(context: Any, given: Any) -> Any:
    """Return an admin client of Kafka, loaded by the thread's loader, which has the connector."""
    jvm = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = loader.loadClass("org.apache.kafka.clients.admin.Admin")
    properties = jvm.java.lang.Class.forName("java.util.Properties")
    classes = context._gateway.new_array(jvm.java.lang.Class, 1)
    classes[0] = properties
    values = context._gateway.new_array(jvm.java.lang.Object, 1)
    values[0] = given
    return kind.getMethod("create", classes).invoke(None, values)
