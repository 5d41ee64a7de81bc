"""The rights that a job needs (docs/streaming.md): it runs with these, and names a missing one."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.errors import KafkaError

import ketal
from ketal.errors import SettingError
from ketal.logs import Source
from ketal.streaming.job.file import Job, Target
from ketal.streaming.kafka.connecting.client_errors import settings_error
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import FORKS, accept, committed, job_of, produce, run
from tests.streaming.secured import PLAIN, Right, Secured, allow


def job_and_rights(
    secured: Secured, folder: Path, *, several: bool, user: str = "job"
) -> tuple[Job, dict[Right, str]]:
    """Return a job with its own group, and the rights it needs → the message without each."""
    source, sink = make_topic(secured), make_topic(secured)
    produce(secured, [(source, 0, accept("a")), (source, 0, accept("b"))])
    group, to = f"group-{source}", Target("kafka", sink)
    state = make_topic(secured, 1, "compact") if several else None
    shared = (
        {}
        if state is None
        else {"store": Target("kafka", state), "source": Source(keyed_by="height")}
    )
    job = job_of(
        secured, [source], folder, group_id=group, verdicts=to, rejected=to, until_end=True,
        properties=PLAIN, **shared,
    )  # fmt: skip
    rights = {
        ("TOPIC", source, "READ"): f"topic {source}",
        ("TOPIC", sink, "WRITE"): f"topic {sink}",
        ("GROUP", group, "READ"): f"group {group}",
        ("TRANSACTIONAL_ID", f"ketal-{group}*", "WRITE"): f"transactional id ketal-{group}",
    }
    if state is not None:
        rights |= {
            ("TOPIC", state, "READ"): f"topic {state}",
            ("TOPIC", state, "WRITE"): f"topic {state}",
            ("TOPIC", state, "DESCRIBE_CONFIGS"): f"topic {state}",
        }
    return Job(**{**vars(job), "bootstrap_servers": secured.at("SASL")}), rights


@pytest.mark.parametrize("several", [False, True])
def test_job_runs_with_the_documented_rights_and_names_a_missing_one(
    several: bool, secured: Secured, tmp_path: Path
) -> None:
    program = ketal.compile(FORKS)
    job, rights = job_and_rights(secured, tmp_path, several=several)
    for lacking, message in rights.items():
        others = [right for right in rights if right != lacking]
        kind, name, _ = lacking
        # A user without READ and WRITE on a topic may still have DESCRIBE.
        for more in [[], [(kind, name, "DESCRIBE")]] if kind == "TOPIC" else [[]]:
            allow(secured, "job", [*others, *more])
            with pytest.raises(SettingError, match="Kafka denies access") as caught:
                run(job, program)
            assert message in str(caught.value), (lacking, more)
            assert "hint: " in str(caught.value)
    allow(secured, "job", rights)
    run(job, program)
    assert isinstance(job.verdicts.name, str)
    assert len(committed(secured, job.verdicts.name, least=1)) == 1


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("Unexpected error in TxnOffsetCommitResponse: [Error 29] {}", "read"),
        ("Cannot execute transactional method because we are in an error state: {}: {'to'}", "to"),
    ],
)
def test_transaction_error_names_the_topic_without_rights(text: str, topic: str) -> None:
    """Once the producer knows of the topic, Kafka's client names it in the error's text only."""
    job = Job(pattern="p", topics=["read"], bootstrap_servers="b:1", group_id="g")
    error = settings_error(job, KafkaError(text.replace("{}", "TopicAuthorizationFailedError")))
    assert f"denies access: topic {topic} (" in str(error)
