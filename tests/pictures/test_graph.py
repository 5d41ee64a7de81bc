"""The description of an automaton and its text formats: dot, Mermaid, JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ketal.pictures.graphs.graph import GraphEdge, GraphState, Picture, Way
from ketal.programs.compiling import compile
from tests.cases import REPLICATED_STACK

ROOT = Path(__file__).resolve().parents[2]

NOTS = """
pattern Nots {
    event E = exists(k);
    event N = k == 9;
    A = k == 1;
    B = k == 2;
    D = k == 4;
    find next A not N B not (k == 7 || k == 8) D;
}
"""
SPELLED = """
pattern Spelled {
    event E = exists(k);
    A = k == "1";
    B = k == "2";
    check automaton { initial end; final end; end -> Waiting on A; Waiting -> end on B; }
}
"""
HOSTILE = r"""
pattern Hostile {
    event E = exists(k);
    A = k == "\"\\ <i> & ; # | `x` {y} %% --> ]] é 日本";
    B = k matches /^"[^"]*"\\$/;
    find next A B;
}
"""


def graph(text: str) -> Picture:
    return Picture.of(compile(text).one)


def labels(of: Picture) -> dict[tuple[int, int], tuple[str, ...]]:
    return {(edge.source, edge.target): edge.label for edge in of.edges}


# --- what it says -------------------------------------------------------------


def test_edges_are_labelled_with_guards_as_written() -> None:
    assert labels(graph(REPLICATED_STACK)) == {
        (0, 1): ("A: On",),
        (1, 1): ("B: Causal(Push, A) || Causal(Pop, A)",),
        (1, 0): ("C: Causal(Off, all)",),
    }


def test_absent_guard_is_shown_before_its_step() -> None:
    assert labels(graph(NOTS)) == {
        (0, 1): ("A: k == 1",),
        (1, 2): ("not N, B: k == 2",),
        (2, 3): ("not (k == 7 || k == 8), D: k == 4",),
    }


def test_alternative_steps_are_ways_of_one_edge() -> None:
    text = "pattern P { event E = exists(k); A = k == 1; B = k == 2; find next (A | B) A; }"
    assert labels(graph(text))[0, 1] == ("A: k == 1", "B: k == 2")


def test_steps_that_hold_together_are_one_way() -> None:
    text = "pattern P { event E = exists(k); A = k > 1; B = k < 9; check A A | B B; }"
    ways = {edge.ways for edge in graph(text).edges}
    assert (Way(("A", "B"), (), "k > 1 && k < 9"),) in ways


def test_ways_are_distinguished_only_between_different_target_states() -> None:
    text = (
        "pattern P { event E = exists(k); A = k > 1; B = j > 1; C = l > 1; "
        "check ((A | B) A | C B)*; }"
    )
    of = graph(text)
    ways = {way for edge in of.edges for way in edge.ways if edge.source == 0}
    assert ways == {
        Way(("A",), (), "k > 1"),
        Way(("B",), (), "j > 1"),
        Way(("C",), (), "l > 1"),
        Way(("A || B", "C"), (), "(k > 1 || j > 1) && l > 1"),
    }
    assert any("(A || B) && C: " in label for edge in of.edges for label in edge.label)
    assert (("A", "B"), ("C",)) in of.minterms


def test_or_keeps_its_parentheses_in_a_conjunction() -> None:
    text = "pattern P { event E = exists(k); A = k > 1 || x == 1; B = k < 9; check A A | B B; }"
    way_guards = {way.guard for edge in graph(text).edges for way in edge.ways}
    assert "(k > 1 || x == 1) && k < 9" in way_guards


def test_step_with_a_register_is_not_in_the_anonymous_way() -> None:
    text = "pattern P { event E = exists(k); A = k > 1; B = k < 9; C = k == A.k; check A C | B; }"
    heads = {way.head for edge in graph(text).edges for way in edge.ways}
    assert heads == {"A", "B", "C"}


def test_event_used_as_a_step_is_named_once() -> None:
    text = "pattern P { event First = k == 1; event Second = k == 2; find next First Second; }"
    assert labels(graph(text)) == {(0, 1): ("First",), (1, 2): ("Second",)}


def test_states_keep_their_names() -> None:
    assert [(s.name, s.initial, s.final) for s in graph(SPELLED).states] == [
        ("end", True, True),
        ("Waiting", False, False),
    ]


# --- dot ------------------------------------------------------------------------


@pytest.mark.parametrize("text", [REPLICATED_STACK, NOTS, SPELLED, HOSTILE])
def test_dot_contains_every_state_and_edge(text: str) -> None:
    of = graph(text)
    dot = of.to_dot()
    for state in of.states:
        assert re.search(rf"^  s{state.number} \[.*peripheries={1 + state.final}", dot, re.M)
    for edge in of.edges:
        assert f"  s{edge.source} -> s{edge.target} [" in dot
    assert f"start -> s{of.initial};" in dot


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("text", [REPLICATED_STACK, NOTS, SPELLED, HOSTILE])
def test_graphviz_accepts_the_dot_output(text: str) -> None:
    of = graph(text)
    done = subprocess.run(
        ["dot", "-Tplain"], input=of.to_dot(), capture_output=True, encoding="utf-8", check=True
    )
    lines = done.stdout.splitlines()
    assert not done.stderr
    assert sum(line.startswith("node ") for line in lines) == len(of.states) + 1
    assert sum(line.startswith("edge ") for line in lines) == len(of.edges) + 1


def test_dot_escapes_special_characters() -> None:
    way = Way(("A",), (), r'k == "\l&lt;"')
    dot = Picture(
        "P", "next", "", (GraphState(0, 'a"b', True, False),), (GraphEdge(0, 0, (way,)),)
    ).to_dot()
    assert r'label="A: k == \"\\l&amp;lt;\"\l"' in dot
    assert r'label="a\"b"' in dot


# --- mermaid ----------------------------------------------------------------------


@pytest.mark.parametrize("text", [REPLICATED_STACK, NOTS, SPELLED, HOSTILE])
def test_mermaid_contains_every_state_and_edge(text: str) -> None:
    of = graph(text)
    mermaid = of.to_mermaid()
    for state in of.states:
        one = r"\(\(\(" if state.final else r"(\(\(|\(\[)"
        assert re.search(rf'^  s{state.number}{one}"', mermaid, re.M)
    for edge in of.edges:
        assert re.search(rf'^  s{edge.source} -->\|"[^"|]+"\| s{edge.target}$', mermaid, re.M)
    assert f"  start --> s{of.initial}\n" in mermaid


def test_mermaid_labels_have_no_special_characters() -> None:
    for label in re.findall(r'\|"(.*?)"\|', graph(HOSTILE).to_mermaid()):
        plain = re.sub(r"#\d+;|<br/>", "", label)
        assert not re.search(r"[^\w\s:.,=()]", plain)
        read = re.sub(r"#(\d+);", lambda m: chr(int(m[1])), label).replace("<br/>", "")
        assert '"' in read


# --- JSON ---------------------------------------------------------------------------


def test_json_describes_the_whole_graph() -> None:
    program = compile(NOTS)
    description = json.loads(program.graph().to_json())
    assert description["pattern"] == "Nots"
    assert description["strategy"] == "next"
    assert description["fingerprint"] == program.fingerprint
    assert (description["initial"], description["finals"]) == (0, [3])
    assert [s["name"] for s in description["states"]] == ["q0", "q1", "q2", "q3"]
    assert description["states"][1]["expected"] == ["B"]
    assert description["steps"][0] == {"name": "A", "guard": "k == 1"}
    assert description["nots"] == ["N", "(k == 7 || k == 8)"]
    edge = description["edges"][1]
    assert (edge["source"], edge["target"]) == (1, 2)
    assert edge["ways"] == [{"steps": ["B"], "nots": ["N"], "guard": "k == 2"}]
    for number in edge["minterms"]:
        assert description["minterms"][number]["holds"] == [["not N, B"]]


def test_every_output_is_the_same_under_every_hash_seed() -> None:
    script = (
        "from ketal.programs.compiling import compile\n"
        "from ketal.pictures.graphs import svg, graphviz\n"
        f"for text in {[REPLICATED_STACK, NOTS, SPELLED, HOSTILE]!r}:\n"
        "    graph = compile(text).graph()\n"
        "    print(graph.to_dot(), graph.to_mermaid(), graph.to_json(), ascii(graph.to_svg()))\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 5_000
