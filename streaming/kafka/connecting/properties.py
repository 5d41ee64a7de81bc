"""The check of `[kafka.properties]`: names, types and values of the properties of kafka-python.

kafka-python accepts any value: a value of a wrong type fails in the middle of a call, and an
unknown word is ignored, so that after a typo in `security_protocol` a client would send unencrypted
data. So properties are checked before any client is made. The type of a property is that of its
default; the few properties without a default are text, or sizes in bytes.

The one rule: a value is shown nowhere, for it may be a password.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from kafka import KafkaConsumer, KafkaProducer, codec

from ketal.errors import SettingError, near
from ketal.streaming.job.addresses import is_host
from ketal.streaming.job.client_properties import FILES
from ketal.streaming.job.file import INT_MAX, KEYS

OURS = frozenset(
    {
        "allow_auto_create_topics", "acks", "api_version", "auto_commit_interval_ms",
        "auto_offset_reset", "bootstrap_servers", "consumer_timeout_ms",
        "default_offset_commit_callback", "enable_auto_commit", "enable_idempotence", "group_id",
        "group_instance_id", "isolation_level", "kafka_client", "key_deserializer",
        "key_serializer", "metric_reporters", "partition_assignment_strategy", "partitioner",
        "retries", "sasl_oauth_token_provider", "selector", "socket_options", "ssl_context",
        "transactional_id", "value_deserializer", "value_serializer",
    }
)  # fmt: skip
"""Properties that the job sets itself, or whose values cannot be written in a file."""
TOKEN_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"
TOKEN_ID = "sasl_oauthbearer_client_credentials_client_id"
TOKEN_SECRET = "sasl_oauthbearer_client_credentials_client_secret"
TOKEN_SCOPE = "sasl_oauthbearer_scope"
TOKENS = (TOKEN_ENDPOINT, TOKEN_ID, TOKEN_SECRET, TOKEN_SCOPE)
"""Properties that kafka-python does not have: those of Java's clients, with `_` for `.`."""
WORDS = {
    "client_dns_lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression_type": ("gzip", "snappy", "lz4", "zstd"),
    "sasl_mechanism": ("AWS_MSK_IAM", "GSSAPI", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256",
                       "SCRAM-SHA-512"),
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
}  # fmt: skip
"""Property → its possible values."""
LEAST = {"max_poll_records": 1, "transaction_timeout_ms": 1}
"""Property → its least useful number, if that is not 0."""


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raise a SettingError for a property that is unknown, set by the job itself, or wrong."""
    defaults = {
        **KafkaConsumer.DEFAULT_CONFIG,
        **KafkaProducer.DEFAULT_CONFIG,
        **dict.fromkeys(TOKENS),
    }
    known = sorted(defaults.keys() - OURS)
    for name, value in properties.items():
        place = f"[kafka.properties] {name}"
        if name in OURS:
            hint = f"\n  hint: set {name} in [kafka]" if name in KEYS["kafka"] else ""
            raise SettingError(f"{place} is set by ketal itself, or cannot be set in a file{hint}")
        if name not in known:
            otherwise = "use the names of KafkaConsumer, for example ssl_cafile"
            hint = near(name.replace(".", "_"), known, otherwise)
            raise SettingError(f"[kafka.properties] unknown property {name!r}{hint}")
        default = defaults[name]
        of_none: type = int if name.endswith("_bytes") else str
        kind = of_none if default is None else type(default)
        _check_kind(place, value, kind, LEAST.get(name, 0))
        if name in WORDS and value not in WORDS[name]:
            raise SettingError(
                f"{place} has an unknown value\n  hint: choose from {', '.join(WORDS[name])}"
            )
        if name == "compression_type" and not getattr(codec, f"has_{value}")():
            raise SettingError(
                f"{place}: the encoder for {value} is not installed\n  hint: pip install "
                f"{'python-snappy' if value == 'snappy' else value}"
            )
        if name in FILES and not os.path.isfile(value):
            raise SettingError(
                f"{place} is not the path of a file\n  hint: a relative path begins in the folder "
                "of the job file"
            )
    _check_login(properties)


def _check_login(properties: Mapping[str, Any]) -> None:
    """Raise a SettingError for SASL without a mechanism, or a mechanism without its credentials."""
    mechanism = properties.get("sasl_mechanism")
    needs: tuple[str, ...] = ()
    if str(properties.get("security_protocol")).startswith("SASL"):
        needs = ("sasl_mechanism",)
    if mechanism == "OAUTHBEARER":
        needs = (TOKEN_ENDPOINT, TOKEN_ID, TOKEN_SECRET)
    elif mechanism == "PLAIN" or str(mechanism).startswith("SCRAM"):
        needs = ("sasl_plain_username", "sasl_plain_password")
    for name in needs:
        if name not in properties:
            what = mechanism or properties["security_protocol"]
            raise SettingError(
                f"[kafka.properties] {what} requires {name}\n  hint: set {', '.join(needs)}"
            )
    if TOKEN_ENDPOINT in properties and not _is_http_url(properties[TOKEN_ENDPOINT]):
        raise SettingError(
            f"[kafka.properties] {TOKEN_ENDPOINT} is not an http: or https: URL\n  hint: use the "
            "URL at which the authorization server issues tokens"
        )


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        is_http = url.scheme in ("http", "https") and url.port != 0
        return is_http and url.hostname is not None and is_host(url.hostname)
    except ValueError:
        return False


def _check_kind(place: str, value: object, kind: type, least: int) -> None:
    """Raise a SettingError if a value is not of type `kind`, or is a number out of range."""
    what, hint = f"an integer of {least} or more", "write it without quotes"
    if kind is bool:
        is_right = isinstance(value, bool)
        what, hint = "a boolean", "write true or false, without quotes"
    elif kind is str:
        is_right = isinstance(value, str) and value != ""
        what, hint = "a non-empty string", "write it in quotes"
    elif is_right := isinstance(value, int) and not isinstance(value, bool):
        is_right, hint = least <= value <= INT_MAX, f"use at most {INT_MAX}"
    if not is_right:
        raise SettingError(f"{place} must be {what}\n  hint: {hint}")


@contextlib.contextmanager
def refused_as_settings(properties: Mapping[str, Any]) -> Iterator[None]:
    """Raise the exceptions of kafka-python while a client is made as a SettingError.

    The message leaves out the text of an exception that has the value of a property.
    """
    try:
        yield
    except (AssertionError, RuntimeError, TypeError, ValueError) as fault:
        reason = f"{type(fault).__name__}: {fault}"
        if any(isinstance(v, str) and v in reason for v in properties.values()):
            reason = type(fault).__name__
        raise SettingError(
            f"kafka-python cannot make a client with these settings ({reason})\n  hint: check "
            "[kafka] bootstrap_servers (HOST:PORT,...; -b) and [kafka.properties]"
        ) from None
