"""The pytest plugin, run in a separate pytest process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PATTERN = """\
pattern AnsweredEarly {
    order CausalOrder;
    event Store = type == "store";
    event Stored = type == "stored";
    Answer = Stored;
    Late = Conc(Store) && key == Answer.key;
    find any Answer Late;
}
"""
PROGRAM = """\
import sys
from ketal.trace import Tracer

tracer = Tracer("server")
tracer.receive(sys.argv[1], "request")
headers = tracer.send("answer")
tracer.record("store", key="x")
print(headers["ketal-clock"] if sys.argv[2] == "early" else tracer.send("answer")["ketal-clock"])
"""
TESTS = """\
import subprocess, sys

def run(ketal_run, when):
    client = ketal_run.tracer("client")
    headers = client.send("ask")
    words = [sys.executable, "program.py", headers["ketal-clock"], when]
    done = subprocess.run(words, env=ketal_run.env, capture_output=True, text=True, check=True)
    client.receive(done.stdout.strip(), "answered")
    client.record("stored", key="x")

def test_early(ketal_run):
    run(ketal_run, "early")
    ketal_run.check("store.ketal")

def test_right(ketal_run):
    run(ketal_run, "right")
    assert ketal_run.check("store.ketal") == []

def test_matches_may_be_wanted(ketal_run):
    run(ketal_run, "early")
    (match,) = ketal_run.check("store.ketal", fail_on=["violation"])
    assert match.kind == "match"

def test_a_kind_may_be_a_word(ketal_run):
    run(ketal_run, "early")
    ketal_run.check("store.ketal", fail_on="match")

def test_misspelt_kind(ketal_run):
    run(ketal_run, "early")
    ketal_run.check("store.ketal", fail_on=["matches"])

def test_parameters_of_what_is_compiled(ketal_run):
    import ketal
    run(ketal_run, "right")
    ketal_run.check(ketal.load("store.ketal"), most=5)

def test_misspelt(ketal_run):
    ketal_run.tracer("client").record("stord", key="x")
    ketal_run.check("store.ketal")

def test_vacuous(ketal_run):
    ketal_run.tracer("client").record("stord", key="x")
    ketal_run.check("store.ketal", vacuous=True)

def test_nothing(ketal_run):
    ketal_run.check("store.ketal")

def test_absent(ketal_run):
    ketal_run.tracer("client").record("stored", key="x")
    ketal_run.check("absent.ketal")
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    for name, text in (
        ("store.ketal", PATTERN), ("program.py", PROGRAM), ("test_store.py", TESTS),
        ("pytest.ini", "[pytest]\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


def _pytest(folder: Path, *words: str, autoload: bool = False) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin; with `autoload` it is found with all others that are installed.

    Importing the others takes half of the processor time of a run.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if not autoload:
        plain["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        words = ("-p", "ketal.pytest_plugin", *words)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120, env=plain,
    )  # fmt: skip


def test_verdict_fails_the_test_with_its_reason_and_a_page(tests: Path) -> None:
    done = _pytest(tests, "--ketal-pages", "pages", "test_store.py", autoload=True)
    out = done.stdout
    assert done.returncode == 1, out + done.stderr
    assert "7 failed, 3 passed" in out
    assert "unknown kind of verdict 'matches' in fail_on; choose from match, violation" in out
    assert "SettingError: most: the parameters of a compiled program cannot be set" in out
    assert "1 verdict in the recorded events:" in out
    assert "match AnsweredEarly: Answer=client@3, Late=server@3" in out
    assert "client@3 and server@3 are concurrent" in out
    assert "AnsweredEarly is vacuous: no event has the type `store`" in out
    assert "no process recorded an event" in out
    # The tracebacks show the tests' lines, not ketal's.
    assert "raise AssertionError" not in out
    assert "cannot read pattern file absent.ketal" in out
    assert "compiling.py" not in out
    assert "pytest_plugin.py" not in out
    page = tests / "pages" / "test_store-test_early.html"
    assert "AnsweredEarly" in page.read_text()
    assert str(page) in out
    assert {one.name for one in page.parent.iterdir()} == {
        page.name,
        "test_store-test_a_kind_may_be_a_word.html",
        "test_store-test_misspelt.html",
    }


NAMED = """
import pytest

class TestOne:
    def test_it(self, ketal_run):
        ketal_run.tracer("client").record("stord")
        ketal_run.check("store.ketal")

class TestOther(TestOne):
    pass

@pytest.mark.parametrize("text", ["a/b", "a:b", "x" * 400, "ö" * 200])
def test_text(ketal_run, text):
    ketal_run.tracer("client").record("stord")
    ketal_run.check("store.ketal")

def test_NAME(ketal_run):
    ketal_run.tracer("client").record("stord")
    ketal_run.check("store.ketal")
""".replace("NAME", "\N{CJK UNIFIED IDEOGRAPH-540D}" * 90)


def test_each_test_has_its_own_page_under_any_name(tests: Path) -> None:
    for folder in ("one", "other"):
        (tests / folder).mkdir()
        (tests / folder / "test_named.py").write_text(NAMED, encoding="utf-8")
    words = ["--ketal-pages", "pages", "--import-mode=importlib", "one", "other"]
    out = _pytest(tests, *words).stdout
    assert "14 failed" in out
    assert out.count("is vacuous: ") >= 14
    pages = sorted(one.name for one in (tests / "pages").iterdir())
    assert len(pages) == 14
    assert "one-test_named-TestOne-test_it.html" in pages
    _pytest(tests, "--basetemp", str(tests / "tmp"), "--import-mode=importlib", "one")
    assert len({one.resolve() for one in tests.glob("tmp/*/*.html")}) == 7


def test_pages_of_a_folder_with_a_hyphen_and_of_a_nested_one_are_different(tests: Path) -> None:
    for folder in ("one-sub", "one/sub"):
        (tests / folder).mkdir(parents=True)
        (tests / folder / "test_named.py").write_text(NAMED, encoding="utf-8")
    _pytest(tests, "--ketal-pages", "pages", "--import-mode=importlib", "one-sub", "one")
    assert len(list((tests / "pages").iterdir())) == 14


def test_without_the_option_the_page_is_beside_the_logs(tests: Path) -> None:
    out = _pytest(tests, "--basetemp", str(tests / "tmp"), "-k", "early").stdout
    (page,) = {one.resolve() for one in tests.glob("tmp/*/test_early.html")}
    assert f"the page of this run: {page}" in out
    assert sorted(one.name for one in (page.parent / "ketal").iterdir()) == [
        "client.jsonl", "server.jsonl",
    ]  # fmt: skip


def test_pages_option_that_is_a_file_is_refused(tests: Path) -> None:
    done = _pytest(tests, "--ketal-pages", "store.ketal")
    assert done.returncode == 4
    assert "argument --ketal-pages: 'store.ketal' is not a folder" in done.stderr


UNCHECKED = """
import ketal

def test_no_event(ketal_run):
    ketal_run.tracer("client")
    ketal_run.check("store.ketal")

def test_no_event_is_wanted(ketal_run):
    ketal_run.tracer("client")
    assert ketal_run.check("store.ketal", vacuous=True) == []

def test_limit(ketal_run):
    tracer = ketal_run.tracer("client")
    tracer.record("stored", key="x")
    tracer.record("store", key="x")
    few = ketal.Limits(events_max=1)
    ketal_run.check(ketal.load("store.ketal", limits=few), vacuous=True)

def test_rejected(ketal_run):
    ketal_run.tracer("client").record("stored", key="x")
    (ketal_run.folder / "server.jsonl").write_text('{"node": "server", "ty')
    ketal_run.check("store.ketal", vacuous=True)

def test_impossible(ketal_run):
    for node, other in ("ab", "ba"):
        line = '{"node": "%s", "type": "store", "clock": {"%s": 1, "%s": 1}}'
        (ketal_run.folder / f"{node}.jsonl").write_text(line % (node, node, other))
    ketal_run.check("store.ketal", vacuous=True)

def test_guard(ketal_run):
    ketal.register_guard("plugin_odd", lambda x: 1 / 0, version="1")
    ketal_run.tracer("client").record("stored", key="x")
    text = 'pattern P { event E = true; A = E && plugin_odd(key); find any A; }'
    ketal_run.check(ketal.compile(text), vacuous=True)
"""


FAULTLESS = """
import ketal

FAILED = ketal.compile('''
    pattern Failed { order CausalOrder; event Ask = type == "ask"; event Reply = type == "reply";
        Bad = Causal(Reply) && code >= 500; find any Ask Bad; }
''')
TURNS = ketal.compile('''
    pattern Turns { event Ask = type == "ask"; event Reply = type == "reply"; check (Ask Reply)*; }
''')

def test_no_reply_is_bad(ketal_run):
    tracer = ketal_run.tracer("client")
    tracer.record("ask")
    tracer.record("reply", code=200)
    assert ketal_run.check(FAILED) == []

def test_no_reply_has_a_code(ketal_run):
    tracer = ketal_run.tracer("client")
    tracer.record("ask")
    tracer.record("reply", status=200)
    ketal_run.check(FAILED)

def test_no_reply_yet(ketal_run):
    ketal_run.tracer("client").record("ask")
    (verdict,) = ketal_run.check(TURNS)
    assert verdict.kind == "incomplete"

def test_misspelt_reply(ketal_run):
    tracer = ketal_run.tracer("client")
    tracer.record("ask")
    tracer.record("repyl")
    ketal_run.check(TURNS)
"""


def test_run_without_the_fault_passes_unless_a_name_is_missing(tests: Path) -> None:
    (tests / "test_store.py").write_text(FAULTLESS)
    done = _pytest(tests, "test_store.py")
    assert "2 failed, 2 passed" in done.stdout
    assert (
        "Failed is vacuous: no event has the attribute `code`, which the step `Bad` requires"
        in done.stdout
    )
    assert (
        "Turns is vacuous: no event has the type `reply`, which is similar to `repyl` (1 event)"
        in done.stdout
    )


def test_unjudged_run_does_not_pass(tests: Path) -> None:
    (tests / "test_store.py").write_text(UNCHECKED)
    done = _pytest(tests, "test_store.py")
    assert "5 failed, 1 passed" in done.stdout
    assert "ketal/server.jsonl:1: the line is not JSON" in done.stdout
    assert "1 event with an impossible clock; run `ketal audit` to find the fault" in done.stdout
    assert "AssertionError: a registered guard of P failed 1 time" in done.stdout
    assert "AssertionError: no event was recorded" in done.stdout
    assert "overflow limit events_max reached at client@2: the event" in done.stdout
    assert "the page of this run was not written: the log has more than 1 events" in done.stdout


UNKNOWN = """
import ketal

BAD = '''
    pattern Bad { event Reply = type == "reply"; Wrong = Reply && code == "500"; find any Wrong; }
'''

def test_a_number_is_no_string(ketal_run):
    ketal_run.tracer("client").record("reply", code=500)
    assert ketal_run.check(ketal.compile(BAD)) == []

def test_replies(ketal_run):
    ketal_run.page.mkdir()
    tracer = ketal_run.tracer("client")
    for _ in range(5):
        tracer.record("reply", code=500)
    ketal_run.check(ketal.compile(BAD + '''
        pattern Any { event Reply = type == "reply"; find any Reply; }
    '''))
"""


UNRECORDED = """
import ketal

def test_one_process_is_not_recorded(ketal_run):
    from ketal.trace import Tracer
    elsewhere = Tracer("server", "server.jsonl")
    ketal_run.tracer("client").receive(elsewhere.send("reply"), "replied")
    ketal_run.check(ketal.compile('''
        pattern Twice { order CausalOrder; event Reply = type == "replied"; First = Reply;
            Second = Conc(Reply); find any First Second; }
    '''))
"""


def test_process_that_is_not_recorded_is_a_warning(tests: Path) -> None:
    (tests / "test_store.py").write_text(UNRECORDED)
    out = _pytest(tests, "test_store.py").stdout
    assert "1 passed, 1 warning" in out
    assert "UserWarning: 1 hole: events that clocks know of and the log lacks; start each" in out


COUNTED = """
import ketal

def test_counted(ketal_run):
    ketal_run.tracer("client").record("reply")
    program = ketal.compile(
        'pattern Any { event Reply = type == "reply"; find any Reply; return count; }'
    )
    ketal_run.check(program, fail_on="violation")
    ketal_run.check(program)
"""


def test_match_that_is_only_counted_fails_the_test(tests: Path) -> None:
    (tests / "test_store.py").write_text(COUNTED)
    out = _pytest(tests, "test_store.py").stdout
    assert "test_store.py:10: AssertionError" in out
    assert "AssertionError: Any: 1 match not listed" in out


SEVERAL = """
import ketal

def test_several(ketal_run):
    client = ketal_run.tracer("client")
    for key in "aabcde":
        client.record("reply", key=key)
    client.record("bye")
    program = ketal.compile('''
        pattern Any { event Reply = type == "reply"; find any Reply; }
        pattern Twice { partition by key; event Reply = type == "reply"; find any Reply Reply; }
        pattern Bye { event Bye = type == "bye"; find any Bye; }
    ''')
    ketal_run.check(program)
"""


def test_failure_explains_a_verdict_of_each_pattern_before_a_second_of_one(tests: Path) -> None:
    (tests / "test_store.py").write_text(SEVERAL)
    message, _, _ = _pytest(tests, "test_store.py").stdout.partition("short test summary info")
    assert "8 verdicts in the recorded events:" in message
    for explained in (
        "match Any: Reply=client@1",
        "match Twice (key=a)",
        "match Bye: Bye=client@7",
    ):
        assert message.count(explained) == 1
    assert "and 5 more: Any 5" in message


def test_unknown_comparison_is_a_warning_or_a_line_of_the_failure(tests: Path) -> None:
    (tests / "test_store.py").write_text(UNKNOWN)
    out = _pytest(tests, "test_store.py").stdout
    assert "1 failed, 1 passed, 1 warning" in out
    assert (
        'test_store.py:10: UserWarning: Bad: line 2: `code == "500"` is unknown: '
        "number with string, 1 event" in out
    )
    assert 'Bad: line 2: `code == "500"` is unknown: number with string, 5 events' in out
    # On a build server, pytest repeats the whole message in its short summary.
    message, _, _ = out.partition("short test summary info")
    assert message.count("match Any: ") == 3
    assert "and 2 more: Any 2" in message
    assert "the page of this run was not written: cannot write " in out
