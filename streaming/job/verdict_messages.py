"""The JSON of verdicts that are sent to a topic.

Kafka refuses a message beyond a size, so a verdict that is too large for a message is replaced by
an `overflow` verdict with the same id. The process engine does so in `Outputs`, Spark in the key
group that renders the verdict.

The one rule: a written verdict fits into a message of its topic, unless it is an `overflow`.
"""

from __future__ import annotations

from typing import Any

from ketal.model.verdicts.identified_verdict import encode_json
from ketal.model.verdicts.verdict_kinds import Verdict


def written_message(verdict: Verdict, bytes_max: int | None) -> tuple[str | None, bytes]:
    """Return the id and the JSON of a verdict, or of the overflow verdict that replaces it.

    The id of a rejection is None. `bytes_max` is the largest size of the JSON, if there is a limit.
    """
    identity, line = verdict.written()
    if bytes_max is None or len(line) <= bytes_max:
        return identity, line
    fields = verdict.to_dict()
    identity_fields: dict[str, Any] = {
        key: fields[key] for key in ("pattern", "id", "execution") if key in fields
    }
    overflow = {
        "verdict": "overflow",
        **identity_fields,
        "limit": "message_bytes_max",
        "given_up": f"the content of a {verdict.kind} verdict of {len(line)} bytes",
    }
    return identity, encode_json(overflow)
