"""Access: whether Kafka accepts the connections of a job's clients, and why not.

kafka-python retries whatever fails while it connects, and its clients raise a timeout only. So each
session begins with a connection of its own, which shows the server's answer: a password, a
certificate or a SASL mechanism that is refused is a fault of the settings; if no server listens,
the session is retried.

A listener drops a connection in another protocol than its own without an answer. Then another
protocol is tried: with TLS where there was none, without it where there was, and ApiVersions alone,
which a listener answers before SASL.

The one rule: a fault of the settings is one that a server has shown; a server that may be starting
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
from ketal.streaming.kafka.connecting.clients import listens, properties_of
from ketal.streaming.kafka.connecting.properties import refused_as_settings

_REFUSED = (
    faults.IllegalSaslStateError,
    faults.KafkaConfigurationError,
    faults.SaslAuthenticationFailedError,
    faults.UnsupportedSaslMechanismError,
)
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)
_TLS = {"PLAINTEXT": False, "SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True}


def check_access(job: Job) -> None:
    """Connect to Kafka's servers in turn, until one takes the connection.

    Raises
    ------
    SettingError
        If none takes it, and one has shown that the settings are why.
    KafkaError, OSError
        What the first server failed of, where it may be another time.
    """
    # A proxy is one of them, of which the manager itself has no default.
    given = properties_of(job, KafkaConsumer)
    tried: list[tuple[str, BaseException]] = []
    for server in job.bootstrap_servers.split(","):
        fault = _fault(job, server, given)
        if fault is None:
            return
        tried.append((server, fault))
    for server, fault in tried:
        why = _refusal(fault) or _wrong_protocol(job, server, given)
        if why is not None:
            raise SettingError(f"Kafka at {server} refuses the connection: {why}") from None
    raise tried[0][1]


def _fault(
    job: Job, server: str, given: Mapping[str, Any], *, greeting_only: bool = False
) -> BaseException | None:
    """Connect once, and request the brokers unless ApiVersions is enough; return what failed."""
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
    """Makes connections whose last answer is read before their end.

    A broker that refuses a password says so and hangs up; where both come at once, kafka-python
    drops the answer.
    """

    async def _build_transport(self, *given: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*given, **options)
        receive = transport._sock_recv

        def answer_first() -> tuple[bytes, BaseException | None]:
            data, fault = receive()
            return data, None if data else fault

        transport._sock_recv = answer_first
        return transport


def _refusal(fault: BaseException) -> str | None:
    """Return the reason, of a server or the TLS library, that settings are wrong; else None."""
    # An error may have been made of another one.
    for one in [one for cause in causes(fault) for one in (cause, *cause.args)]:
        if isinstance(one, _REFUSED):
            return f"{one}\n  hint: look at security_protocol and sasl_* in [kafka.properties]"
        if isinstance(one, ssl.SSLError) and not isinstance(one, _HUNG_UP):
            return f"TLS: {one}\n  hint: look at ssl_* in [kafka.properties]; ssl_cafile names " + (
                "the certificate of the authority that signed the broker's"
            )
    return None


def _wrong_protocol(job: Job, server: str, given: Mapping[str, Any]) -> str | None:
    """Return what another protocol shows of a server that dropped the connection."""
    protocol = str(given.get("security_protocol", "PLAINTEXT"))
    if not listens(server):
        return None
    tls = _TLS[protocol]
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    plain = {**given, "security_protocol": "PLAINTEXT"}
    with_tls = {**given, "security_protocol": "SSL", "ssl_context": unverified}
    hint = f"and security_protocol is {protocol}\n  hint: it is one of {', '.join(_TLS)}"
    if _fault(job, server, plain if tls else with_tls, greeting_only=True) is None:
        return f"it speaks {'no TLS' if tls else 'TLS'}, {hint}"
    if protocol.startswith("SASL"):
        return None  # It would have answered which SASL it wants.
    greeted = _fault(job, server, given, greeting_only=True) is None
    # One that answers, and drops the same again, was not just going or coming.
    return f"it wants SASL, {hint}" if greeted and _fault(job, server, given) else None
