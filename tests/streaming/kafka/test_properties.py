"""`[kafka.properties]`: wrong settings are refused before any request to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer

import ketal
from ketal.errors import SettingError
from ketal.logs import Source
from ketal.streaming.broker.server import Broker
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.connecting import clients, properties
from ketal.streaming.kafka.connecting.properties import check_properties
from ketal.streaming.kafka.process_engine import ProcessEngine
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import FORKS, HookRecorder, Topic, job_of, run


def test_properties_have_the_names_of_kafka_python() -> None:
    check_properties({"sasl_plain_password": "secret", "linger_ms": 1, "check_crcs": False})
    with pytest.raises(SettingError, match="did you mean security_protocol") as caught:
        check_properties({"security.protocol": "secret"})
    assert "secret" not in str(caught.value)
    with pytest.raises(SettingError, match="set by ketal itself"):
        check_properties({"isolation_level": "read_uncommitted"})
    with pytest.raises(SettingError, match=r"file\n  hint: set group_id in \[kafka\]$"):
        check_properties({"group_id": "g"})
    assert "isolation_level" in KafkaConsumer.DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_poll_records", "secret", "must be an integer of 1 or more"),
        ("max_poll_records", 0, "must be an integer of 1 or more\n  hint: use at most 2147483647"),
        (
            "fetch_max_bytes",
            2**31,
            "must be an integer of 0 or more\n  hint: use at most 2147483647",
        ),
        ("transaction_timeout_ms", 0, "must be an integer of 1 or more"),
        ("request_timeout_ms", True, "must be an integer of 0 or more"),
        ("request_timeout_ms", 1.5, "must be an integer of 0 or more"),
        ("send_buffer_bytes", "secret", "must be an integer of 0 or more"),
        ("check_crcs", "secret", "must be a boolean"),
        ("ssl_check_hostname", 1, "must be a boolean"),
        ("client_id", 7, "must be a non-empty string"),
        ("sasl_plain_password", 4711, "must be a non-empty string"),
        ("sasl_plain_password", "", "must be a non-empty string"),
        (
            "security_protocol",
            "SASL-SECRET",
            "hint: choose from PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ("security_protocol", "ssl", "hint: choose from PLAINTEXT, SSL"),
        ("compression_type", "lz5secret", "hint: choose from gzip, snappy, lz4, zstd"),
        ("sasl_mechanism", "SCRAM-SECRET", "hint: choose from AWS_MSK_IAM"),
        ("client_dns_lookup", "secret", "hint: choose from use_all_dns_ips"),
        ("ssl_cafile", "secret.pem", "is not the path of a file"),
    ],
)
def test_invalid_property_value_is_refused_without_being_printed(
    name: str, value: Any, message: str
) -> None:
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b:1", group_id="g",
              properties={name: value})  # fmt: skip
    with pytest.raises(SettingError) as caught:
        ProcessEngine(job, ketal.compile(FORKS), HookRecorder().hooks())
    text = str(caught.value)
    assert text.startswith(f"[kafka.properties] {name} ")
    assert message in text
    assert "hint: " in text
    assert "secret" not in text.lower()
    assert "4711" not in text


@pytest.mark.parametrize(("word", "package"), [("lz4", "lz4"), ("snappy", "python-snappy")])
def test_compression_without_its_library_names_the_package(
    word: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"kafka.codec.has_{word}", lambda: False)
    with pytest.raises(
        SettingError,
        match=f"the encoder for {word} is not installed\n  hint: pip install {package}$",
    ):
        properties.check_properties({"compression_type": word})
    monkeypatch.setattr(f"kafka.codec.has_{word}", lambda: True)
    properties.check_properties({"compression_type": word})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"security_protocol": "SASL_SSL"}, "SASL_SSL requires sasl_mechanism"),
        ({"sasl_mechanism": "PLAIN"}, "PLAIN requires sasl_plain_username"),
        ({"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "me"},
         "SCRAM-SHA-512 requires sasl_plain_password"),
        ({"sasl_mechanism": "OAUTHBEARER"}, f"OAUTHBEARER requires {properties.TOKEN_ENDPOINT}"),
        ({"sasl_mechanism": "OAUTHBEARER", properties.TOKEN_ENDPOINT: "http://a"},
         f"requires {properties.TOKEN_ID}\n  hint: set "),
        *(
            ({properties.TOKEN_ENDPOINT: url}, "is not an http: or https: URL\n  hint: ")
            for url in ("file:secret", "https:", "http://a..b", "http://[::1/t", "http://a:x")
        ),
    ],
)  # fmt: skip
def test_incomplete_login_settings_are_refused_before_connecting(
    values: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError) as caught:
        check_properties(values)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value).replace(properties.TOKEN_SECRET, "")


def test_accepted_words_are_those_of_kafka_python() -> None:
    """ketal accepts exactly the words that kafka-python accepts."""
    from kafka import KafkaProducer
    from kafka.net.manager import KafkaConnectionManager
    from kafka.net.sasl import SASL_MECHANISMS

    compressions = {word for word in KafkaProducer._COMPRESSORS if word is not None}
    assert set(properties.WORDS["compression_type"]) == compressions
    lookups = set(KafkaConnectionManager._VALID_DNS_LOOKUP_MODES)
    assert set(properties.WORDS["client_dns_lookup"]) == lookups
    assert set(SASL_MECHANISMS) <= set(properties.WORDS["sasl_mechanism"])


@pytest.mark.parametrize(
    ("values", "message"),
    [({}, "'port'"), ({"sasl_plain_password": "port"}, "settings (ValueError)")],
)
def test_client_that_refuses_its_settings_is_a_setting_error(
    values: dict[str, str], message: str
) -> None:
    """The client's message is shown, unless it contains a value."""
    job = Job(pattern="p", topics=["t"], bootstrap_servers="b:port", group_id="g",
              properties=values)  # fmt: skip
    for make in (clients.make_consumer, lambda job: clients.make_producer(job, "id")):
        with pytest.raises(SettingError, match="hint: check") as caught:
            make(job)
        assert message in str(caught.value)


def test_transaction_timeout_beyond_the_brokers_is_a_setting_error(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python raises another error than the one it defines for this case."""
    job = job_of(broker, [topic()], tmp_path, properties={"transaction_timeout_ms": 99_999_999})
    with pytest.raises(
        SettingError, match=r"Kafka does not allow this transaction_timeout_ms\n  hint: "
    ):
        run(job, ketal.compile(FORKS))


def test_session_timeout_beyond_the_brokers_is_a_setting_error(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """The job tried again until `lost_after_ms`: the broker refuses each try."""
    job = job_of(
        broker, [topic()], tmp_path, properties={"session_timeout_ms": 99_999_999},
        source=Source(keyed_by="height"), store=Target("kafka", make_topic(broker, 1, "compact")),
        lost_after_ms=5_000, until_end=True,
    )  # fmt: skip
    with pytest.raises(
        SettingError, match=r"Kafka does not allow this session_timeout_ms\n  hint: the bounds"
    ):
        run(job, ketal.compile(FORKS))


def test_properties_that_exclude_each_other_are_named_as_settings(
    broker: Broker, topic: Topic, tmp_path: Path
) -> None:
    """kafka-python checks them itself, so it is not Kafka that refused them."""
    job = job_of(broker, [topic()], tmp_path, properties={"session_timeout_ms": 10})
    with pytest.raises(
        SettingError, match=r"^\[kafka.properties\] Heartbeat interval must be lower than the sess"
    ):
        run(job, ketal.compile(FORKS))
