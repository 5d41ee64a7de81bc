"""docs/cookbook.md: its patterns and their output over a good and a bad log each."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given

import ketal
from ketal.cli import main
from tests.examples.transcripts import ROOT, blocks, replay
from tests.page_blocks import page, write_files
from tests.sampling import chances, examples

FOLDER = ROOT / "examples" / "cookbook"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ketal"))
PAGE = page("cookbook.md")
SECTIONS = {
    found[1]: section
    for section in PAGE.split("\n## ")[1:]
    if (found := re.search(r"^`(\w+)\.ketal`:$", section, re.M))
}
_, *_transcripts = blocks(ROOT / "docs" / "cookbook.md")  # the first one is `cd`
TRANSCRIPTS = dict(zip(SECTIONS, _transcripts, strict=True))

both_logs = pytest.mark.parametrize("kind", ["good", "bad"])
each = pytest.mark.parametrize("name", NAMES)


def log(name: str, kind: str) -> list[ketal.Event]:
    return list(ketal.read_log(FOLDER / f"{name}.{kind}.jsonl"))


def text(name: str) -> str:
    return (FOLDER / f"{name}.ketal").read_text(encoding="utf-8")


def fails(pattern: str, events: list[ketal.Event]) -> bool:
    """Return whether a pattern reports a match, violation or incomplete run for events."""
    verdicts = ketal.run(ketal.compile(pattern), events)
    (counts,) = verdicts.summary["patterns"].values()
    return any(counts[kind] for kind in ("matches", "violations", "incomplete"))


def clocks_of_times(events: list[ketal.Event]) -> list[ketal.Event]:
    """Return the events with clocks by wall time: each knows all events with a smaller time."""
    clock: dict[str, int] = {}
    out = []
    for event in sorted(events, key=lambda event: event.time or 0.0):
        clock[event.node] = clock.get(event.node, 0) + 1
        out.append(
            ketal.Event(
                node=event.node, type=event.type, clock=dict(clock), time=event.time,
                data=event.data,
            )
        )  # fmt: skip
    return out


def test_every_pattern_has_a_section_and_two_logs() -> None:
    assert len(NAMES) >= 12
    assert sorted(SECTIONS) == NAMES
    logs = {f"{name}.{kind}.jsonl" for name in NAMES for kind in ("good", "bad")}
    assert {path.name for path in FOLDER.iterdir()} == logs | {f"{name}.ketal" for name in NAMES}


def test_page_shows_the_files(tmp_path: Path) -> None:
    for file in write_files(PAGE, tmp_path):
        assert (tmp_path / file).read_bytes() == (FOLDER / file).read_bytes()


@each
def test_commands_print_the_output_on_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = TRANSCRIPTS[name]
    assert replay(block) == block.text
    good, bad = block.commands
    assert good.endswith(f" {name}.ketal {name}.good.jsonl")
    assert bad == good.replace(".good.", ".bad.")
    monkeypatch.chdir(FOLDER)
    assert [main(command.split()[1:]) for command in (good, bad)] == [0, 1]


@each
def test_pattern_has_no_warning_and_the_canonical_layout(name: str) -> None:
    assert ketal.lint(text(name)) == []
    assert main(["fmt", "--check", str(FOLDER / f"{name}.ketal")]) == 0


@each
@both_logs
def test_log_is_valid_and_has_the_types_in_the_pattern(name: str, kind: str) -> None:
    events = log(name, kind)
    assert 6 <= len(events) <= 25
    assert ketal.audit(events).clean
    types = set(re.findall(r'type == "([^"]*)"', text(name)))
    assert types
    assert types <= {event.type for event in events}


@each
def test_good_log_passes_and_bad_log_fails(name: str) -> None:
    assert [fails(text(name), log(name, kind)) for kind in ("good", "bad")] == [False, True]


@each
@both_logs
def test_every_order_of_the_lines_gives_the_same_verdicts(name: str, kind: str) -> None:
    program, events = ketal.compile(text(name)), log(name, kind)
    verdicts = [verdict.to_dict() for verdict in ketal.run(program, events)]

    @examples(6, 200)
    @given(chances())
    def holds(rng: random.Random) -> None:
        lines = rng.sample(events, len(events))
        assert [verdict.to_dict() for verdict in ketal.run(program, lines)] == verdicts

    holds()


@pytest.mark.parametrize("name", [name for name in NAMES if "find any" in text(name)])
@both_logs
def test_every_order_of_arrival_gives_the_same_matches(name: str, kind: str) -> None:
    program, events = ketal.compile(text(name)), log(name, kind)
    ids = sorted(match.id for match in ketal.run(program, events).matches)

    @examples(6, 200)
    @given(chances())
    def holds(rng: random.Random) -> None:
        monitor = ketal.Monitor(program)
        arriving = rng.sample(events, len(events))
        verdicts = [verdict for event in arriving for verdict in monitor.feed(event)]
        verdicts += monitor.close()
        found = sorted(verdict.id for verdict in verdicts if isinstance(verdict, ketal.Match))
        assert found == ids

    holds()


def test_table_lists_used_features_and_verdicts_by_wall_clock() -> None:
    rows = re.findall(r"^\| \[(.*)\]\(#(.*)\) \| (.*) \| (.*) \| (.*) \|$", PAGE, re.M)
    assert [row[0] for row in rows] == [part.partition("\n")[0] for part in SECTIONS.values()]
    for (title, anchor, used, *cells), name in zip(rows, SECTIONS, strict=True):
        assert anchor == title.lower().replace(" ", "-")
        assert [one for one in used.strip("`").split("`, `") if one not in text(name)] == []
        good, bad = (
            fails(text(name), clocks_of_times(log(name, kind))) for kind in ("good", "bad")
        )
        assert cells == ["**fails**" if good else "passes", "fails" if bad else "**passes**"]


ADAPTED = {
    "two_leaders": {"partition by term": "partition by token"},
    "quorum": {"Stored{2,}": "Stored{3,}"},
    "stale_read": {
        "Stale = Causal(Read, Write) && version < Write.version;":
            "Old = Write; Newer = Causal(Write); Stale = Causal(Read) && returned == Old.id;",
        "find any Write Stale;": "find any Old Newer Stale;",
        "return written = Write.version, read = Stale.version;": "",
    },
    "lost_invalidation": {
        'event Invalidate = type == "invalidate" && localhost;':
            'event Invalidate = type in ["invalidate", "load"] && localhost;',
    },
    "lock_overlap": {"Taken = Acquire;": "Taken = Acquire && node != Held.node;"},
    "foreign_unlock": {"node != Acquire.node": "owner != Acquire.owner"},
    "redelivery": {
        'event Acknowledge = type == "acknowledge";': "",
        "Again = Causal(Deliver, Acknowledge);": "First = Deliver; Second = Deliver;",
        "find any Acknowledge Again;": "find any First Second;",
    },
    "unacknowledged": {
        'event Deliver = type == "deliver";': "",
        "Delivered = Causal(Deliver, Send);": "",
        "check Send Delivered* Settled (Delivered | Settled)*;":
            "find any Send Settled; within 30 s;",
    },
    "causal_delivery": {
        "Effect = Causal(Send, Cause);": "Effect = Causal(Send, Cause) && node == Cause.node;",
        "order CausalOrder;": "order CausalOrder; partition by channel;",
    },
    "double_effect": {"Second = Charge;": "Second = Causal(Charge);"},
    "barrier": {
        "order CausalOrder;": "order CausalOrder; mode possibly;",
        "find any Leave Arrive;": "check Arrive{3} Leave*;",
    },
    "lost_update": {
        'event Merge = type == "merge";': "",
        'event Read = type == "read";': "",
        "Seen = Causal(Read, all);": "",
        "find any First Second not (Causal(Merge, all)) Seen;": "find any First Second;",
    },
    "session": {
        "check Issue Known*;":
            'event Revoke = type == "revoke"; Out = Causal(Revoke, all); check Issue Known* Out?;',
    },
    "snapshot": {"order CausalOrder;": "order CausalOrder; partition by database;"},
    "skipped_entry": {
        "index != Before.index + 1": "index > Before.index + 1",
        "partition by node": "partition by node, log",
    },
}  # fmt: skip
"""Per pattern the replacements that its section advises, all applied together."""


ADAPTED_FAIL = {
    "quorum": (True, True),  # three of three is more than either log has
    "lost_invalidation": (False, True),
    "lock_overlap": (False, True),
    "redelivery": (True, True),  # both logs deliver twice
    "causal_delivery": (False, False),  # the question and the answer are of two senders
    "double_effect": (False, False),  # the second bank did not know of the first charge
    "barrier": (False, True),
    "lost_update": (True, True),  # both logs have writes that are concurrent
    "session": (False, True),
}
"""Whether adapted patterns fail the good and the bad log, if these have the attributes."""


def adapted(name: str) -> str:
    out = text(name)
    for old, new in ADAPTED[name].items():
        assert old in out
        out = out.replace(old, new)
    return out


@pytest.mark.parametrize("name", ADAPTED)
def test_adapted_pattern_is_on_the_page_and_has_no_warning(name: str) -> None:
    assert ketal.lint(adapted(name)) == []
    advice = " ".join(SECTIONS[name].partition("To adapt it: ")[2].split())
    codes = [code for code in re.findall("`([^`]+)`", advice) if re.search("[ {]", code)]
    assert codes
    for statement in " ".join(codes).split(";"):
        assert statement.strip() in adapted(name)


@pytest.mark.parametrize("name", ADAPTED_FAIL)
def test_adapted_pattern_has_the_expected_verdicts(name: str) -> None:
    pattern = adapted(name).replace("partition by channel;", "")  # these logs have no channels
    outcome = tuple(fails(pattern, log(name, kind)) for kind in ("good", "bad"))
    assert outcome == ADAPTED_FAIL[name]


def test_message_not_acknowledged_in_time_is_timed_out() -> None:
    verdicts = ketal.run(ketal.compile(adapted("unacknowledged")), log("unacknowledged", "bad"))
    late = [verdict for verdict in verdicts if isinstance(verdict, ketal.TimedOut)]
    assert [dict(verdict.scope) for verdict in late] == [{"message": "m2"}]


@pytest.mark.parametrize(
    ("known", "used_later", "expected"),
    [
        ({"api1": 1, "api2": 1}, False, False),
        ({"api1": 1}, False, True),  # the use at api2 is concurrent with the logout
        ({"api1": 1, "api2": 1}, True, True),
    ],
)
def test_logout_must_be_after_every_use(
    known: dict[str, int], used_later: bool, expected: bool
) -> None:
    clock = {"alice": 3, "bob": 1, "login": 3, **known}
    logout = ketal.Event(node="login", type="revoke", clock=clock, data={"token": "t1"})
    later = ketal.Event(node="api2", type="use", clock={**clock, "api2": 2}, data={"token": "t1"})
    events = [*log("session", "good"), logout, *[later] * used_later]
    assert ketal.audit(events).clean
    assert fails(adapted("session"), events) is expected


def test_larger_window_by_option_finds_slower_retries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [str(FOLDER / "retry_storm.ketal"), str(FOLDER / "retry_storm.good.jsonl")]
    assert "--set window=30s" in " ".join(SECTIONS["retry_storm"].split())
    assert main(["run", "--set", "window=30s", "--fail-on", "match", "--count", *files]) == 1
    assert "5 matches" in capsys.readouterr().out


def test_log_of_a_lock_does_not_show_who_releases_it() -> None:
    alternating = """
        pattern Alternating {
            order CausalOrder;
            partition by lock;
            event Acquire = type == "acquire";
            event Release = type == "release";
            check (Acquire Release)*;
        }
    """
    assert "`check (Acquire Release)*`" in SECTIONS["foreign_unlock"]
    verdicts = ketal.run(ketal.compile(alternating), log("foreign_unlock", "bad"))
    assert verdicts.violations == ()


def test_check_cannot_refer_to_the_previous_event_of_its_own_step() -> None:
    pattern, _ = text("skipped_entry").replace("!= Before", "== Next").split("    find")
    found = ketal.lint(pattern + "check Before Next*; }")
    assert [one.code for one in found] == ["K201"]
