"""`ketal graph`, `ketal limits`, and the output of `ketal` without a valid command."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ketal as package
from ketal.analysis.parameters import parse_value
from ketal.cli import COMMANDS, INTERRUPTED
from ketal.cli.exit_codes import CAUSES
from ketal.cli.output.output_lines import STYLES
from ketal.logs.source import FORMATS
from ketal.model.limits import Limits
from ketal.model.syntax import Duration
from ketal.model.verdicts.verdict_kinds import KINDS
from tests.cli.conftest import CONFLICT, PHASES, ROOT, Ketal, Write, event

# --- notebooks ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["audit", "stats", "cuts"])
def test_notebook_shows_what_the_command_prints(ketal: Ketal, write: Write, name: str) -> None:
    log = "".join(event(node, "<b>", {node: 1}) for node in ("a", "b&c"))
    log += event("a", "x", {"a": 3}) if name != "cuts" else ""
    path = write("run.jsonl", log)
    shown = getattr(package, name)(package.read_log(path))._repr_html_()
    assert shown.startswith("<pre>")
    assert "<b>" not in shown
    text = html.unescape(shown.removeprefix("<pre>").removesuffix("</pre>"))
    assert text.splitlines() == ketal(name, path).lines


# --- graph ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "head"), [("dot", "digraph"), ("mermaid", "flowchart"), ("svg", "<svg"), ("json", "{")]
)
def test_graph_is_printed_in_each_form(ketal: Ketal, write: Write, form: str, head: str) -> None:
    write("conflict.ketal", CONFLICT)
    result = ketal("graph", "conflict.ketal", "--to", form)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(head)
    assert "Conc(Write)" in result.out


def test_graph_is_dot_unless_the_file_name_has_another_form(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    write("conflict.ketal", CONFLICT)
    assert ketal("graph", "conflict.ketal").out.startswith("digraph")
    assert ketal("graph", "conflict.ketal", "--write", "a.svg").out == ""
    ElementTree.fromstring((tmp_path / "a.svg").read_text())
    ketal("graph", "conflict.ketal", "--write", "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["pattern"] == "Conflict"
    ketal("graph", "conflict.ketal", "--write", "b.svg", "--to", "dot")
    assert (tmp_path / "b.svg").read_text().startswith("digraph")


def test_graph_in_an_unsupported_picture_form_is_refused(
    ketal: Ketal, write: Write, tmp_path: Path
) -> None:
    write("conflict.ketal", CONFLICT)
    result = ketal("graph", "--write", "x.PNG", "conflict.ketal")
    assert result.code == 2
    assert result.err.startswith("ketal: cannot write a .png picture; write an .svg, or a .dot")
    assert not (tmp_path / "x.PNG").exists()
    assert ketal("graph", "--write", "x.PNG", "--to", "dot", "conflict.ketal").code == 0


@pytest.mark.parametrize("command", ["lint", "fmt"])
def test_standard_input_given_twice_is_refused(ketal: Ketal, command: str) -> None:
    result = ketal(command, "-", "-", stdin=CONFLICT)
    assert (result.code, result.out) == (2, "")
    assert result.err == "ketal: standard input (-) is given twice, but can be read only once\n"


def test_graph_of_one_of_several_patterns(ketal: Ketal, write: Write) -> None:
    write("both.ketal", CONFLICT + PHASES)
    result = ketal("graph", "both.ketal")
    assert (result.code, result.err) == (
        2,
        "ketal: both.ketal has several patterns: Conflict, Phases; choose one with --pattern\n",
    )
    assert "Phases" in ketal("graph", "both.ketal", "--pattern", "Phases").out


def test_graph_of_a_pattern_with_an_error(ketal: Ketal) -> None:
    result = ketal("graph", "-", stdin="pattern P { check A; }")
    assert result.code == 2
    assert result.err.startswith("<stdin>:1:9: error[K")


def test_graph_with_a_parameter(ketal: Ketal) -> None:
    text = PHASES.replace('"open"', "kind").replace("{", '{ param kind = "open";', 1)
    result = ketal("graph", "-", "--set", "kind=begin", stdin=text)
    assert result.code == 0


# --- limits ---------------------------------------------------------------------------


def test_limits_lists_every_limit(ketal: Ketal) -> None:
    result = ketal("limits")
    assert result.code == 0
    assert [line.split()[0] for line in result.lines[1:]] == [f.name for f in fields(Limits)]
    row = next(line for line in result.lines if line.startswith("held_back_max "))
    assert row.split(maxsplit=3) == [
        "held_back_max", "100,000", "events", "events held back until they are ready"
    ]  # fmt: skip


def test_limits_as_json(ketal: Ketal) -> None:
    objects = ketal("limits", "--output", "json").objects
    assert {o["limit"]: o["default"] for o in objects} == {
        f.name: f.default for f in fields(Limits)
    }
    assert set(objects[0]) == {"limit", "default", "unit", "meaning"}


# --- before any command -----------------------------------------------------------------


def test_version(ketal: Ketal) -> None:
    result = ketal("--version")
    assert (result.code, result.out) == (0, f"ketal {package.__version__}\n")


def test_version_of_a_compiled_ketal_is_marked(
    ketal: Ketal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled_spec(name: str) -> ModuleSpec:
        return ModuleSpec(name, None, origin=f"ketal/machine{EXTENSION_SUFFIXES[0]}")

    monkeypatch.setattr("ketal.cli.find_spec", compiled_spec)
    assert ketal("--version").out == f"ketal {package.__version__} (compiled)\n"


def test_help_lists_all_commands(ketal: Ketal) -> None:
    result = ketal("--help")
    assert result.code == 0
    listed = result.out.split("commands:\n")[1].split("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == list(COMMANDS)
    assert list(COMMANDS) == [
        "run", "lint", "fmt", "explain", "view", "graph", "stats", "audit", "cuts", "clocks",
        "stream", "broker", "demo", "limits",
    ]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(ketal: Ketal, command: str) -> None:
    result = ketal(command, "--help")
    assert result.code == 0
    assert "example" in result.out
    assert f"  ketal {command}" in result.out.split("example")[1]
    assert max(map(len, result.lines)) <= 100


def test_help_of_run_shows_a_config_file(ketal: Ketal) -> None:
    assert "  ketal run --config " in ketal("run", "--help").out.split("example")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_begins_with_a_sentence(ketal: Ketal, command: str) -> None:
    about = ketal(command, "--help").out.split("\n\n")[1]
    assert re.fullmatch(r"[A-Z][^.?]*\.", about)


def test_ketal_without_a_command_prints_the_commands(ketal: Ketal) -> None:
    result = ketal()
    assert (result.code, result.out) == (2, "")
    assert "commands:" in result.err


def test_unknown_command_gets_a_suggestion(ketal: Ketal) -> None:
    result = ketal("rn", "a.ketal")
    assert result.code == 2
    assert "unknown command 'rn'; did you mean run?" in result.err
    assert "choose from run, lint" in ketal("zzz").err
    assert ketal("--verbose").code == 2


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--ouput", "; did you mean --output?"),
        ("--patern=X", "; did you mean --pattern?"),
        ("--qqqqqq", ""),
    ],
)
def test_misspelt_option_gets_a_suggestion(ketal: Ketal, word: str, hint: str) -> None:
    result = ketal("run", word, "p.ketal", "run.jsonl")
    assert result.code == 2
    assert result.err.startswith(f"ketal run: error: unrecognized arguments: {word}{hint}\n")


def test_misspelt_option_without_a_command_gets_a_suggestion(ketal: Ketal) -> None:
    result = ketal("--verison")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        "ketal: error: unrecognized arguments: --verison; did you mean --version?\n"
    )


LIGHT = """
import sys
from ketal.cli import main
main(sys.argv[1:])
heavy = {"lark", "automata", "rich", "pandas", "pyarrow", "networkx", "re2", "msgspec"}
print(*heavy & {name.split(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_load_no_heavy_modules(word: str) -> None:
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", LIGHT, word], cwd=root, capture_output=True, text=True, check=True
    )
    assert ran.stderr.strip() == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("30s", Duration(30, "s")),
        ("1.5 min", Duration(1.5, "min")),
        ("200ms", Duration(200, "ms")),
        ("2 h", Duration(2, "h")),
        ("-5s", Duration(-5, "s")),
        ("30 seconds", "30 seconds"),
        ("7", 7),
        ("-7", -7),
        ("007x", "007x"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("nan", "nan"),
        ("٣", "٣"),
        ("", ""),
        ('"30s"', "30s"),
        ("'7'", "7"),
        ('"', '"'),
    ],
)
def test_values_of_set_are_parsed(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


# --- as a process -----------------------------------------------------------------------


def test_ketal_runs_as_a_module(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("--version")
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, f"ketal {package.__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_cli_page_documents_every_option(ketal: Ketal, command: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    section = text.split(f"\n## `ketal {command}`\n")[1].split("\n## ")[0]
    options = set(re.findall(r"^  (--[a-z-]+)", ketal(command, "--help").out, re.MULTILINE))
    assert options <= set(re.findall(r"--[a-z-]+", section))


def test_every_kind_of_verdict_has_a_colour() -> None:
    assert [kind for kind in KINDS if kind not in STYLES] == []


def test_lists_on_the_cli_page_and_in_help_are_complete(ketal: Ketal) -> None:
    """A format of logs is named on the page, in the help and in the docstring of `read_log`."""
    rows = (ROOT / "docs" / "cli.md").read_text("utf-8").splitlines()
    (causes,) = (row for row in rows if row.startswith("| `--fail-on "))
    assert set(re.findall(r"`(\w+)`", causes)) == set(CAUSES)
    (formats,) = (row for row in rows if row.startswith("| `--format "))
    parameter = (package.read_log.__doc__ or "").split("format : str")[1].split(" : ")[0]
    for text in (formats, parameter, ketal("run", "--help").out.split("--format FORMAT")[2]):
        assert [name for name in FORMATS if name not in text] == []


@pytest.mark.parametrize("command", ["stats", "cuts"])
def test_documented_output_is_the_printed_output(ketal: Ketal, write: Write, command: str) -> None:
    run = (
        event("a", "write", {"a": 1}, key="x", value=1)
        + event("b", "write", {"b": 1}, key="x", value="2")
        + event("b", "read", {"b": 2}, key="x")
    )
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    shown = page.split(f"```\n$ ketal {command} run.jsonl\n")[1].split("```")[0]
    assert ketal(command, write("run.jsonl", run)).out == shown


@pytest.mark.parametrize("command", ["run", "explain", "lint"])
def test_ctrl_c_while_a_pattern_compiles_is_reported(
    ketal: Ketal, write: Write, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ketal.programs.compiling._compile_with_diagnostics", interrupted)
    words = [write("p.ketal", CONFLICT), *([] if command == "lint" else ["-"])]
    result = ketal(command, *words)
    assert (result.code, result.err) == (
        INTERRUPTED,
        "ketal: interrupted: p.ketal was not compiled\n",
    )
