"""The check whether Kafka accepts a job's connections, and why it does not.

While it connects, kafka-python retries every failure, and its clients raise a timeout only. So each
session begins with a trial connection, which shows the server's answer. If the server refuses a
password, a certificate or a SASL mechanism, the settings are at fault; if no server listens, the
session is retried.

A listener drops a connection in another protocol than its own without an answer. Then the check
tries another protocol: TLS if the settings have none, no TLS if they have it, and finally a request
for ApiVersions alone, which a listener answers before SASL.

The one rule: the settings are at fault only if a server has shown it; a server that may be starting
or stopping is retried.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka import errors as faults
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from ketal.errors import SettingError
from ketal.streaming.job.file import Job
from ketal.streaming.kafka.connecting.client_calls import CLIENT_ERRORS
from ketal.streaming.kafka.connecting.client_errors import causes
from ketal.streaming.kafka.connecting.clients import client_properties, is_listening
from ketal.streaming.kafka.connecting.properties import WORDS, refused_as_settings

_REFUSED = (
    faults.IllegalSaslStateError,
    faults.KafkaConfigurationError,
    faults.SaslAuthenticationFailedError,
    faults.UnsupportedSaslMechanismError,
)
_CONNECTION_CLOSED = (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)


def check_access(job: Job) -> None:
    """Connect to Kafka's servers in turn, until one accepts the connection.

    Raises
    ------
    SettingError
        If no server accepts it, and one has shown that the settings are at fault.
    KafkaError, OSError
        The failure of the first server, if a retry may succeed.
    """
    # They include the setting of a proxy, for which the manager itself has no default.
    given = client_properties(job, KafkaConsumer)
    tried: list[tuple[str, BaseException]] = []
    for server in job.bootstrap_servers.split(","):
        fault = _connection_fault(job, server, given)
        if fault is None:
            return
        tried.append((server, fault))
    for server, fault in tried:
        why = _refusal_reason(fault) or _protocol_fault(job, server, given)
        if why is not None:
            raise SettingError(f"Kafka at {server} refuses the connection: {why}") from None
    raise tried[0][1]


def _connection_fault(
    job: Job, server: str, given: Mapping[str, Any], *, greeting_only: bool = False
) -> BaseException | None:
    """Try one connection; return the exception that it failed with, or None.

    The connection includes a request for metadata, or with `greeting_only` just for ApiVersions.
    """
    with refused_as_settings(job.properties):
        net = NetworkSelector()
        manager = _Manager(net, bootstrap_servers=server, **given)
    (node,) = (broker.node_id for broker in manager.cluster.bootstrap_brokers())

    async def connect() -> None:
        await manager.get_connection(node, pop_on_close=False, refresh_metadata_on_err=False)
        if not greeting_only:
            await manager.cluster.refresh_metadata(node)

    try:
        manager.run(connect)
    except CLIENT_ERRORS as fault:
        return fault
    finally:
        manager.close()
        net.close()
    return None


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Makes connections that read the server's last answer before they report their end.

    A broker that refuses a password answers so and closes the connection. If both arrive at once,
    kafka-python drops the answer.
    """

    async def _build_transport(self, *given: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*given, **options)
        receive = transport._sock_recv

        def answer_first() -> tuple[bytes, BaseException | None]:
            data, fault = receive()
            return data, None if data else fault

        transport._sock_recv = answer_first
        return transport


def _refusal_reason(fault: BaseException) -> str | None:
    """Return why the settings are wrong, if a server or the TLS library gives a reason; or None."""
    # An error of the connection has the error of the socket as an argument.
    for one in [one for cause in causes(fault) for one in (cause, *cause.args)]:
        if isinstance(one, _REFUSED):
            return f"{one}\n  hint: check security_protocol and sasl_* in [kafka.properties]"
        if isinstance(one, ssl.SSLError) and not isinstance(one, _CONNECTION_CLOSED):
            return (
                f"TLS: {one}\n  hint: check ssl_* in [kafka.properties]; ssl_cafile must be the "
                "certificate of the authority that signed the broker's certificate"
            )
    return None


def _protocol_fault(job: Job, server: str, given: Mapping[str, Any]) -> str | None:
    """Try other protocols on a server that dropped the connection; return the fault, or None."""
    protocol = str(given.get("security_protocol", "PLAINTEXT"))
    if not is_listening(server):
        return None
    tls = protocol.endswith("SSL")
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    plain = {**given, "security_protocol": "PLAINTEXT"}
    with_tls = {**given, "security_protocol": "SSL", "ssl_context": unverified}
    protocols = WORDS["security_protocol"]
    hint = f"but security_protocol is {protocol}\n  hint: choose from {', '.join(protocols)}"
    if _connection_fault(job, server, plain if tls else with_tls, greeting_only=True) is None:
        return f"it {'does not use' if tls else 'uses'} TLS, {hint}"
    if protocol.startswith("SASL"):
        return None  # A listener with SASL would have named its mechanisms.
    greeted = _connection_fault(job, server, given, greeting_only=True) is None
    # A server that answers, and drops the connection once more, is not just starting or stopping.
    if greeted and _connection_fault(job, server, given):
        return f"it requires SASL, {hint}"
    return None
