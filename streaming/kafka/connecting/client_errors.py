"""Classification of the exceptions of Kafka's clients.

The one rule: an exception of a client is one of three: a fault of the settings, which ends the job;
an offset that the topic no longer has, which is a StateError; or any other, after which a new
session begins with new clients and state.
"""

from __future__ import annotations

import re

from kafka import errors as faults

from ketal.errors import SettingError
from ketal.streaming.job.file import Job
from ketal.streaming.job.outputs import too_large_error
from ketal.streaming.kafka.connecting.clients import transactional_id

_SETTINGS_FAULTS = (
    faults.IncompatibleBrokerVersion,
    faults.InvalidTopicError,
    faults.SaslAuthenticationFailedError,
    faults.UnsupportedSaslMechanismError,
    faults.UnsupportedVersionError,
)
_TOO_LARGE = (faults.MessageSizeTooLargeError, faults.RecordListTooLargeError)
OUT_OF_RANGE = (
    faults.LogTruncationError,
    faults.NoOffsetForPartitionError,
    faults.OffsetOutOfRangeError,
)
_QUOTED = re.compile(r"'([\w.-]+)'", re.ASCII)
"""The name of a topic in the text of an error, which has a set of names as Python prints it."""
_RIGHTS = (
    faults.TopicAuthorizationFailedError,
    faults.GroupAuthorizationFailedError,
    faults.TransactionalIdAuthorizationFailedError,
    faults.AuthorizationError,
)


def _missing_right(job: Job, error: BaseException) -> str | None:
    """Return the resource that the user has no right to, if an error is about that; None if not.

    If the right is missing within a transaction, kafka-python raises a KafkaError whose text names
    the class.
    """
    by_name = str(error) if type(error) is faults.KafkaError else ""
    kind = next((k for k in _RIGHTS if isinstance(error, k) or k.__name__ in by_name), None)
    if kind is None:
        return None
    if kind is faults.TopicAuthorizationFailedError:
        # An error that names no topic is about the offsets of the topics that are read.
        named = _QUOTED.findall(by_name) if by_name else error.args[0] if error.args else ()
        topics = named or job.topics
        return f"topic {topics if isinstance(topics, str) else ', '.join(sorted(topics))}"
    if kind is faults.GroupAuthorizationFailedError:
        return f"group {job.group_id}"
    if kind is faults.TransactionalIdAuthorizationFailedError:
        return f"transactional id {transactional_id(job)}" + ("-*" if job.is_shared else "")
    return f"{type(error).__name__} {error}"


def settings_error(job: Job, error: BaseException) -> SettingError | None:
    """Return the SettingError for an error that a retry cannot help; None for any other error."""
    for one in causes(error):
        if (missing_right := _missing_right(job, one)) is not None:
            return SettingError(
                f"Kafka denies access: {missing_right} ({one})\n"
                "  hint: grant the user of [kafka.properties] the rights that docs/streaming.md "
                "lists"
            )
        if isinstance(one, _SETTINGS_FAULTS):
            return SettingError(f"Kafka refused a request: {describe(one)}")
        if isinstance(one, _TOO_LARGE):
            return too_large_error(job, describe(one))
        if isinstance(one, faults.UnsupportedCodecError):
            return SettingError(
                f"the messages of {', '.join(job.topics)} are compressed, and their decoder is not "
                f"installed: {describe(one)}\n  hint: pip install lz4, or python-snappy"
            )
        if isinstance(one, faults.KafkaConfigurationError):
            return SettingError(f"[kafka.properties] {' '.join(map(str, one.args))}")
        # kafka-python has a class for it, and yet raises a KafkaError whose text names the class.
        if faults.InvalidTransactionTimeoutError.__name__ in f"{type(one).__name__} {one}":
            return SettingError(
                "[kafka.properties] Kafka does not allow this transaction_timeout_ms\n"
                "  hint: the maximum is Kafka's transaction.max.timeout.ms (15 minutes by default)"
            )
        if isinstance(one, faults.InvalidSessionTimeoutError):
            return SettingError(
                "[kafka.properties] Kafka does not allow this session_timeout_ms\n"
                "  hint: the bounds are Kafka's group.min.session.timeout.ms and "
                "group.max.session.timeout.ms (6 seconds and 30 minutes by default)"
            )
    return None


def topic_error(topic: str, error: BaseException) -> BaseException:
    """Return the error of a message; add the topic's name if the error has no text."""
    if error.args in ((), (None,)):
        error.args = (f"topic {topic}",)
    return error


def missing_messages(error: BaseException) -> str:
    """Return the place of each message that an exception of `OUT_OF_RANGE` says is missing.

    It is topic, partition and offset, or without the offset if the exception does not have it.
    """
    if isinstance(error, faults.OffsetOutOfRangeError):
        places = [(*partition, offset) for partition, offset in error.args[0].items()]
    else:
        places = getattr(error, "divergent_offsets", error.args[0])
    return ", ".join("/".join(map(str, place)) for place in sorted(places))


def describe(error: BaseException) -> str:
    """Return the class name and the text of an error; the text alone if it has the class name.

    If a call failed because an earlier one had, these are of the error of the earlier call.
    """
    error = _first_failure(error)
    name, text = type(error).__name__, str(error)
    return text if name in text else f"{name}: {text}".removesuffix(": ")


def causes(error: BaseException) -> list[BaseException]:
    """Return an error and its chain of causes, which may be a cycle.

    A call that failed because an earlier one had is represented by the error of the earlier call.
    """
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and all(one is not seen for seen in chain):
        chain.append(one)
        one = one.__cause__ or one.__context__
    return [_first_failure(one) for one in chain]


def _first_failure(error: BaseException) -> BaseException:
    """Return the error because of which kafka-python refuses a call; any other error unchanged.

    A call is refused with a KafkaError that has the error of an earlier call as an argument.
    """
    if type(error) is faults.KafkaError:
        for failed in error.args:
            if isinstance(failed, BaseException):
                return _first_failure(failed)
    return error
