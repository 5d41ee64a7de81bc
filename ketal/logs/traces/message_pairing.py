"""Pair the sends and receives of a log by message ids.

Message ids that a log records at sends and receives order a receive after its send, as a vector
clock does. `Messages` is parsed from a text such as
`id=msg.id,send=type:send,receive=type:recv`: `id` is the attribute that identifies the
message (several attributes are joined by `+`); `send` and `receive` select the events, each by a
field and its possible values (separated by `|`, with `*` for any characters).

A field is `node`, `type`, `id` or `time` of the event, or the path of
an attribute, its keys joined by `.`; `data.x` is an attribute whose name is that of a field.
A backslash escapes the next character.

The one rule: an ambiguous message is not paired. A message that two
events send is counted, and its send is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ketal.errors import SettingError, near
from ketal.logs.source import MESSAGES_EXAMPLE, path_of, split_unescaped
from ketal.model.events.event import Event
from ketal.model.values import dig

_OWN = ("node", "type", "id", "time")
_KEYS = ("id", "send", "receive")


def _glob(text: str) -> str:
    """Return the regular expression of a value with `*`, with backslashes removed."""
    first, *rest = (
        re.escape(re.sub(r"\\(.)", r"\1", piece)) for piece in split_unescaped(text, "*")
    )
    if not rest:
        return first
    # Atomic groups do not backtrack, so matching takes linear time.
    return first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + f".*{rest[-1]}"


def text_at(event: Event, path: tuple[str, ...]) -> str | None:
    """Return the value of a field of an event as text; None if it is absent or not a scalar."""
    if len(path) == 1 and path[0] in _OWN:
        value = getattr(event, path[0])
    else:
        value = dig(event.data, path[1:] if path[0] == "data" and len(path) > 1 else path)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


@dataclass(frozen=True)
class _Test:
    """A test of one field of an event by a regular expression; `text` is its source text."""

    path: tuple[str, ...]
    expression: re.Pattern[str]
    text: str

    def __call__(self, event: Event) -> bool:
        text = text_at(event, self.path)
        return text is not None and self.expression.fullmatch(text) is not None


@dataclass(frozen=True)
class Messages:
    """How to recognise sends and receives; the values of the fields `id` identify a message."""

    id: tuple[tuple[str, ...], ...]
    send: _Test
    receive: _Test

    @classmethod
    def of(cls, option: str | Mapping[str, str]) -> Messages:
        """Parse the text of `--match-messages`, or a mapping with the same keys.

        Raises a SettingError if the option is malformed.
        """
        if not isinstance(option, str | Mapping):
            raise SettingError(
                "the keys for matching messages must be a string, for example "
                f"{MESSAGES_EXAMPLE}, not {option!r}"
            )
        given = _parse_keys(option) if isinstance(option, str) else dict(option)
        for key, value in given.items():
            if key not in _KEYS:
                raise SettingError(f"unknown key {key!r} for matching messages{near(key, _KEYS)}")
            if not isinstance(value, str) or not value:
                raise SettingError(
                    f"the key {key} for matching messages is empty; "
                    f"write, for example, {MESSAGES_EXAMPLE}"
                )
        for key in _KEYS:
            if key not in given:
                raise SettingError(
                    f"matching messages requires {key}=…; write, for example, {MESSAGES_EXAMPLE}"
                )
        return cls(
            id=tuple(path_of(path) for path in split_unescaped(given["id"], "+")),
            send=_parse_test("send", given["send"]),
            receive=_parse_test("receive", given["receive"]),
        )

    def name(self, event: Event) -> tuple[str, ...] | None:
        """Return the id of the message that an event sends or receives; None if it has no id."""
        texts = [text_at(event, path) for path in self.id]
        return None if None in texts else tuple(texts)  # type: ignore[arg-type]


def _parse_keys(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for piece in split_unescaped(text, ","):
        key, *value = split_unescaped(piece, "=", 1)
        if not value:
            raise SettingError(
                f"{piece!r} is not of the form KEY=VALUE, for example {MESSAGES_EXAMPLE}"
            )
        if key.strip() in given:
            raise SettingError(f"{key.strip()} is given twice in {text!r}")
        given[key.strip()] = value[0].strip()
    return given


def _parse_test(key: str, text: str) -> _Test:
    field, *values = split_unescaped(text, ":", 1)
    if not values:
        raise SettingError(
            f"{key}={text} is not of the form {key}=FIELD:VALUE, for example {key}=type:{key}"
        )
    alternatives = "|".join(f"(?:{_glob(value)})" for value in split_unescaped(values[0], "|"))
    return _Test(path_of(field), re.compile(alternatives, re.DOTALL), text)


@dataclass(frozen=True)
class Pairing:
    """The pairing of the messages of an execution; events are given by position in a list."""

    sends: Mapping[int, int]
    """Receive → its send."""
    unsent: tuple[int, ...]
    """Receives of a message that no event in the log sends."""
    ambiguous: tuple[int, ...]
    """Receives of a message that several events send."""
    unreceived: int
    """The number of sends of a message that no event receives."""
    unnamed: int
    """The number of receives without a message id."""
    void: tuple[str, ...]
    """The keys that match no event, as `id=msg.id`: most likely mistyped."""


def paired(events: Sequence[Event], messages: Messages) -> Pairing:
    """Pair the receives of an execution with their sends."""
    senders: dict[tuple[str, ...], list[int]] = {}
    receivers: list[tuple[int, tuple[str, ...]]] = []
    unnamed = 0
    void: dict[str, Callable[[Event], bool]] = {
        f"id={'.'.join(path)}": partial(_has_value, path) for path in messages.id
    }
    void[f"send={messages.send.text}"] = messages.send
    void[f"receive={messages.receive.text}"] = messages.receive
    for at, event in enumerate(events):
        if void:
            void = {key: matches for key, matches in void.items() if not matches(event)}
        name = messages.name(event)
        if name is None:
            unnamed += messages.receive(event)
            continue
        if messages.send(event):
            senders.setdefault(name, []).append(at)
        if messages.receive(event):
            receivers.append((at, name))
    sends: dict[int, int] = {}
    unsent: list[int] = []
    ambiguous: list[int] = []
    for at, name in receivers:
        # Two suffice: a message that two events send is ambiguous.
        others = (sender for sender in senders.get(name, ()) if sender != at)
        candidates = list(islice(others, 2))
        if len(candidates) == 1:
            sends[at] = candidates[0]
        else:
            (ambiguous if candidates else unsent).append(at)
    received = {name for _, name in receivers}
    unreceived = sum(
        len(candidates) for name, candidates in senders.items() if name not in received
    )
    keys = tuple(void) if events else ()
    return Pairing(sends, tuple(unsent), tuple(ambiguous), unreceived, unnamed, keys)


def keys_void(pairings: Sequence[Pairing]) -> list[str]:
    """Return the keys that match no event in any execution."""
    void = [pairing.void for pairing in pairings]
    return [key for key in void[0] if all(key in keys for keys in void)] if void else []


def _has_value(path: tuple[str, ...], event: Event) -> bool:
    return text_at(event, path) is not None
