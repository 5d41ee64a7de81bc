"""Every form of the language is parsed as intended and rendered back the same."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lark import Lark

from ketal.analysis.name_resolution import resolve
from ketal.errors import Span
from ketal.grammar import parse, render, render_body, render_guard
from ketal.grammar.reader import grammar, language
from ketal.model import syntax as ast

A, B, C = ast.Step("A"), ast.Step("B"), ast.Step("C")
X = ast.Attribute(("x",))
N = ast.Name("N")

# A check and a find with most of what the language has.
REPLICATED_STACK = """\
// The replicated stack of the paper's Fig. 12: every node runs its own copy.
pattern ReplicatedStack {
    order CausalOrder;                       // default: order arrival
    at every node;                           // one copy per node; localhost is that node

    event On   = call(* ReplicatedStack.on(..)) && localhost;
    event Push = call(* ReplicatedStack.push(..));
    event Pop  = call(* ReplicatedStack.pop(..));
    event Off  = call(* ReplicatedStack.off(..)) && localhost;

    A = On;
    B = Causal(Push, A) || Causal(Pop, A);   // causally after the On that this run consumed
    C = Causal(Off, all);

    check (A B* C)*;
}
"""
FORKED_BLOCKS = """\
pattern ForkedBlocks {
    order CausalOrder;
    partition by height;
    event Accept = type == "AcceptBlock";
    First  = Accept;
    Second = Conc(Accept) && hash != First.hash;
    find any First Second;
    within 10 s;
    return height = First.height, nodes = [First.node, Second.node];
}
"""


def pattern(statements: str) -> ast.Pattern:
    """Parse statements within a pattern, and check that they render back."""
    text = f"pattern P {{ {statements} }}"
    if not re.search(r"\b(check|find)\b", statements):
        text = f"pattern P {{ {statements} check A; }}"
    file = parse(text)
    assert parse(render(file)) == file
    return file.patterns[0]


def guard(text: str, before: str = "") -> ast.Guard:
    return pattern(f"{before} First = true; G = {text};").steps[-1].guard


def value(text: str, before: str = "") -> ast.Value:
    node = guard(f"x == {text}", before)
    assert isinstance(node, ast.Comparison)
    return node.right


def body(text: str) -> ast.Body:
    return pattern(f"find next {text};").body


# --- whole patterns -------------------------------------------------------------------


def test_replicated_stack_is_parsed() -> None:
    file = parse(REPLICATED_STACK)
    (stack,) = file.patterns
    assert stack.name == "ReplicatedStack"
    assert stack.kind == "check"
    assert stack.order == ast.Order("causal")
    assert stack.deployment == ast.Deployment(None, False)
    call = ast.Call("*", "ReplicatedStack.on", ("..",))
    assert stack.events[0] == ast.EventDecl("On", ast.And((call, ast.Localhost())))
    push, pop = ast.Name("Push"), ast.Name("Pop")
    assert stack.steps == (
        ast.StepDecl("A", ast.Name("On")),
        ast.StepDecl("B", ast.Or((ast.Causal(push, "A"), ast.Causal(pop, "A")))),
        ast.StepDecl("C", ast.Causal(ast.Name("Off"), ast.ALL)),
    )
    assert stack.body == ast.Repeat(ast.Sequence((A, ast.Repeat(B, 0, None), C)), 0, None)
    assert parse(render(file)) == file
    assert resolve(file) == []


def test_forked_blocks_pattern_is_parsed() -> None:
    file = parse(FORKED_BLOCKS)
    (forks,) = file.patterns
    assert (forks.kind, forks.strategy) == ("find", "any")
    assert forks.partition == (ast.Attribute(("height",)),)
    unequal = ast.Comparison(
        "!=", ast.Attribute(("hash",)), ast.Reference("First", ast.Attribute(("hash",)))
    )
    assert forks.steps[1].guard == ast.And((ast.Conc(ast.Name("Accept")), unequal))
    assert forks.window == ast.Window(ast.Duration(10, "s"))
    nodes = tuple(ast.Reference(step, ast.Field("node")) for step in ("First", "Second"))
    height = ast.Reference("First", ast.Attribute(("height",)))
    assert forks.returns == ast.Returns(
        (ast.ReturnItem("height", height), ast.ReturnItem("nodes", ast.ListOf(nodes)))
    )
    assert parse(render(file)) == file
    assert resolve(file) == []


def test_several_patterns_share_events_and_parameters() -> None:
    file = parse(
        "param w = 10 s; event E = x == 1;\n"
        "pattern P { find next E; within w; } event F = E; pattern Q { check F; }"
    )
    assert [p.name for p in file.patterns] == ["P", "Q"]
    assert [e.name for e in file.events] == ["E", "F"]
    assert file.params == (ast.ParamDecl("w", ast.Duration(10, "s")),)
    assert file.patterns[0].window == ast.Window(ast.ParamRef("w"))
    assert parse(render(file)) == file


# --- values ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", ast.Literal(1)),
        ("1.0", ast.Literal(1.0)),
        ("-3", ast.Literal(-3)),
        ("-(3)", ast.Negative(ast.Literal(3))),
        ("- -3", ast.Negative(ast.Literal(-3))),
        ("1e3", ast.Literal(1000.0)),
        ("true", ast.Literal(True)),
        ("false", ast.Literal(False)),
        (r'"a\"b\nü\u00fc"', ast.Literal('a"b\nüü')),
        ('""', ast.Literal("")),
        ("10 s", ast.Duration(10, "s")),
        ("10s", ast.Duration(10, "s")),
        ("0.5 h", ast.Duration(0.5, "h")),
        ("node", ast.Field("node")),
        ("time", ast.Field("time")),
        ("count", ast.Attribute(("count",))),
        ("order", ast.Attribute(("order",))),
        ("all", ast.Attribute(("all",))),
        ("by", ast.Attribute(("by",))),
        ("data.count", ast.Attribute(("count",))),
        ("data.node", ast.Attribute(("node",))),
        ("data.data", ast.Attribute(("data",))),
        ("data.in.not", ast.Attribute(("in", "not"))),
        ('data["odd.name"]', ast.Attribute(("odd.name",))),
        ('data["a"].b["c d"]', ast.Attribute(("a", "b", "c d"))),
        ("http.status", ast.Attribute(("http", "status"))),
        ('http["status.code"]', ast.Attribute(("http", "status.code"))),
        ("First.hash", ast.Reference("First", ast.Attribute(("hash",)))),
        ("First.node", ast.Reference("First", ast.Field("node"))),
        ("First.data.node", ast.Reference("First", ast.Attribute(("node",)))),
        ("First.data.data", ast.Reference("First", ast.Attribute(("data",)))),
        ("First.http.status", ast.Reference("First", ast.Attribute(("http", "status")))),
        ('First["odd.name"]', ast.Reference("First", ast.Attribute(("odd.name",)))),
        ("data.First.hash", ast.Attribute(("First", "hash"))),
        ("data.First", ast.Attribute(("First",))),
    ],
)
def test_values(text: str, meant: ast.Value) -> None:
    assert value(text) == meant


def test_precedence_of_arithmetic() -> None:
    one, two, three = (ast.Literal(n) for n in (1, 2, 3))

    def calculated(ops: str, *operands: ast.Value) -> ast.Value:
        return ast.Arithmetic(tuple(ops), operands)  # type: ignore[arg-type]

    assert value("1 + 2 * 3") == calculated("+", one, calculated("*", two, three))
    assert value("1 - 2 - 3") == calculated("--", one, two, three)
    assert value("(1 - 2) + 3") == calculated("-+", one, two, three)
    assert value("1 - (2 - 3)") == calculated("-", one, calculated("-", two, three))
    assert value("(1 + 2) % 3") == calculated("%", calculated("+", one, two), three)
    assert value("1 * 2 + 3") == calculated("+", calculated("*", one, two), three)
    assert value("-x / 2") == calculated("/", ast.Negative(X), two)
    assert value("1 -2") == calculated("-", one, two)


def test_bare_name_is_a_parameter_if_declared() -> None:
    assert value("w", "param w = 1;") == ast.ParamRef("w")
    assert value("data.w", "param w = 1;") == ast.Attribute(("w",))
    assert value("w") == ast.Attribute(("w",))


def test_misspelt_step_is_not_an_attribute() -> None:
    assert value("Frist.x") == ast.Reference("Frist", X)
    assert value("firsd.x", "first = true;") == ast.Reference("firsd", X)
    assert value("data.Frist.x") == ast.Attribute(("Frist", "x"))


# --- guards -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("N", N),
        ("(N)", N),
        ("true", ast.Truth(True)),
        ("false", ast.Truth(False)),
        ("call(* Stack.push(..))", ast.Call("*", "Stack.push", ("..",))),
        ("call(void com..S*.m(int, .., A[]))", ast.Call("void", "com..S*.m", ("int", "..", "A[]"))),
        ("call(int f())", ast.Call("int", "f", ())),
        ('host("db-*")', ast.Function("host", (ast.Literal("db-*"),))),
        ('origin("A")', ast.Function("origin", (ast.Literal("A"),))),
        ("localhost", ast.Localhost()),
        ('x in [1, "a"]', ast.Membership(X, (ast.Literal(1), ast.Literal("a")))),
        (r"x matches /a\/b\d/", ast.Matches(X, r"a/b\d")),
        (r"x matches /\\/", ast.Matches(X, r"\\")),
        ("x matches /\"'{;/", ast.Matches(X, "\"'{;")),
        ("exists(x)", ast.Function("exists", (X,))),
        ("exists(First.id)", ast.Function("exists", (ast.Reference("First", ast.Field("id")),))),
        ("near(x, 3)", ast.Function("near", (X, ast.Literal(3)))),
        ("now()", ast.Function("now", ())),
        ("Causal(N)", ast.Causal(N, ast.PRIOR)),
        ("Causal(N, prior)", ast.Causal(N, ast.PRIOR)),
        ("Conc(N, all)", ast.Conc(N, ast.ALL)),
        ("Conc(Causal(N, First), First)", ast.Conc(ast.Causal(N, "First"), "First")),
        ("!N", ast.Not(N)),
        ("!!N", ast.Not(ast.Not(N))),
        ("!x == 1", ast.Not(ast.Comparison("==", X, ast.Literal(1)))),
        ("!(x == 1)", ast.Not(ast.Comparison("==", X, ast.Literal(1)))),
        ("N && N || N", ast.Or((ast.And((N, N)), N))),
        ("N && (N || N)", ast.And((N, ast.Or((N, N))))),
        ("N && (N && N)", ast.And((N, N, N))),
        ("(N || N) || N", ast.Or((N, N, N))),
        ("(x + 1) * 2 >= 3", None),
        ("((x)) == ((1))", ast.Comparison("==", X, ast.Literal(1))),
        ("N // to the end\n && /* or * not **/ N", ast.And((N, N))),
    ],
)
def test_guards(text: str, meant: ast.Guard | None) -> None:
    read = guard(text)
    assert meant is None or read == meant


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons(op: str) -> None:
    assert guard(f"x {op} 1") == ast.Comparison(op, X, ast.Literal(1))  # type: ignore[arg-type]


# --- bodies -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("A", A),
        ("(A)", A),
        ("A B", ast.Sequence((A, B))),
        ("(A B) C", ast.Sequence((A, B, C))),
        ("A | B C", ast.Alternation((A, ast.Sequence((B, C))))),
        ("(A | B) | C", ast.Alternation((A, B, C))),
        ("(A | B) C", ast.Sequence((ast.Alternation((A, B)), C))),
        ("A*", ast.Repeat(A, 0, None)),
        ("A+", ast.Repeat(A, 1, None)),
        ("A?", ast.Repeat(A, 0, 1)),
        ("A{2}", ast.Repeat(A, 2, 2)),
        ("A{2,5}", ast.Repeat(A, 2, 5)),
        ("A { 2 , }", ast.Repeat(A, 2, None)),
        ("(A*)?", ast.Repeat(ast.Repeat(A, 0, None), 0, 1)),
        ("(A B){3}", ast.Repeat(ast.Sequence((A, B)), 3, 3)),
        ("{A & B C}", ast.Together((A, ast.Sequence((B, C))))),
        ("A {B & C}", ast.Sequence((A, ast.Together((B, C))))),
        ("{A & {B & C}}+", ast.Repeat(ast.Together((A, ast.Together((B, C)))), 1, None)),
        ("A not N B", ast.Sequence((A, ast.Absent(N), B))),
        ("A not (N) B", ast.Sequence((A, ast.Absent(N), B))),
        ("A not N (B | C)", ast.Sequence((A, ast.Absent(N), ast.Alternation((B, C))))),
        ("A not (N && x < 1) B", None),
        (
            'A not host("a") B',
            ast.Sequence((A, ast.Absent(ast.Function("host", (ast.Literal("a"),))), B)),
        ),
        ("A not Causal(N, A) B", ast.Sequence((A, ast.Absent(ast.Causal(N, "A")), B))),
        ("(A not N B) C", ast.Sequence((A, ast.Absent(N), B, C))),
    ],
)
def test_bodies(text: str, meant: ast.Body | None) -> None:
    read = body(text)
    assert meant is None or read == meant


def test_explicit_automaton() -> None:
    edges = (ast.Edge("q0", "q1", "A"), ast.Edge("q1", "q1", "B"), ast.Edge("q1", "q0", "C"))
    text = "automaton { initial q0; final q0; q0 -> q1 on A; q1 -> q1 on B; q1 -> q0 on C; }"
    assert body(text) == ast.AutomatonBody("q0", ("q0",), edges)
    assert pattern(f"check {text}").body == ast.AutomatonBody("q0", ("q0",), edges)
    assert pattern("check automaton { q0 -> q0 on A; initial q0; }").body == ast.AutomatonBody(
        "q0", None, (ast.Edge("q0", "q0", "A"),)
    )
    assert body("automaton { initial a; final a, b; }") == ast.AutomatonBody("a", ("a", "b"), ())


# --- statements ---------------------------------------------------------------------


def test_orders() -> None:
    assert pattern("order arrival;").order == ast.Order("arrival")
    assert pattern("order CausalOrder;").order == ast.Order("causal")
    assert pattern("").order == ast.Order("arrival")
    every = pattern(
        'param w = 1 s; order CausalOrder(total, nodes = ["a", "b"], frontier = 10 s, '
        "gap = 30 s, idle = w, overflow = lost);"
    ).order
    assert every == ast.Order(
        "causal",
        total=True,
        nodes=("a", "b"),
        frontier=ast.Duration(10, "s"),
        gap=ast.Duration(30, "s"),
        idle=ast.ParamRef("w"),
        overflow="lost",
    )
    assert pattern("order CausalOrder(overflow = reject);").order.overflow == "reject"


def test_order_statement_may_have_any_position() -> None:
    assert pattern("event E = true; check E; order CausalOrder;").order.kind == "causal"


def test_deployments() -> None:
    assert pattern("at every node;").deployment == ast.Deployment(None, False)
    assert pattern("at every node all;").deployment == ast.Deployment(None, True)
    assert pattern('at host("db-*");').deployment == ast.Deployment("db-*", False)
    assert pattern('at host("db-*") all;').deployment == ast.Deployment("db-*", True)


def test_topologies() -> None:
    edges = (ast.TopologyEdge("p", "q"), ast.TopologyEdge("q", "r 1", relaxed=True))
    assert pattern('topology { p -> q; q -> "r 1" relaxed; }').topology == ast.Topology(edges)
    assert pattern("topology open { p -> q; };").topology == ast.Topology(edges[:1], open=True)


def test_windows_and_limits() -> None:
    assert pattern("find next A; within 5 s;").window == ast.Window(ast.Duration(5, "s"))
    assert pattern("find next A; within 100 events;").window == ast.Window(100)
    assert pattern("find next A; within w;").window == ast.Window(ast.ParamRef("w"))
    assert pattern("find next A; limit 10;").limit == 10


def test_other_statements() -> None:
    assert pattern("partition by a, b.c, data.node, node;").partition == (
        ast.Attribute(("a",)),
        ast.Attribute(("b", "c")),
        ast.Attribute(("node",)),
        ast.Field("node"),
    )
    assert pattern("mode possibly;").mode == "possibly"
    assert pattern("mode definitely;").mode == "definitely"
    for reaction in ("halt", "resume", "skip"):
        assert pattern(f"on violation {reaction};").on_violation == reaction
    for strategy in ("strict", "next", "any"):
        assert pattern(f"find {strategy} A;").strategy == strategy
    assert pattern("find A;").strategy is None
    assert pattern("find next A; return count;").returns == ast.Returns(count=True)
    named = pattern("find next A; return count = A.x;").returns
    assert named == ast.Returns((ast.ReturnItem("count", ast.Reference("A", X)),))


def test_parameters() -> None:
    text = 'param a = 1; param b = -2.5; param c = "x"; param d = true; param e = 5 min;'
    assert [p.value for p in pattern(text).params] == [
        ast.Literal(1),
        ast.Literal(-2.5),
        ast.Literal("x"),
        ast.Literal(True),
        ast.Duration(5, "min"),
    ]


# --- places -------------------------------------------------------------------------


def test_spans_count_from_one() -> None:
    (read,) = parse("pattern P {\n  event E = x == 1;\n  check E;\n  limit 3;\n}").patterns
    assert read.span == Span(1, 9, 1, 10)
    assert read.events[0].span == Span(2, 9, 2, 10)
    assert read.events[0].guard.span == Span(2, 13, 2, 19)
    assert read.body.span == Span(3, 9, 3, 10)
    assert read.places["limit"] == Span(4, 3, 4, 11)


def test_line_ends_of_windows_and_a_byte_order_mark() -> None:
    (read,) = parse("\ufeffpattern P {\r\n  event E = true; // c\r\n  check E;\r\n}\r\n").patterns
    assert read.body.span == Span(3, 9, 3, 10)


# --- the parser ---------------------------------------------------------------------


def test_grammar_has_no_parser_or_lexer_conflict() -> None:
    # In strict mode lark refuses shift/reduce conflicts and colliding terminals.
    strict = Lark(grammar(), parser="lalr", strict=True)
    assert strict.options.parser == language().options.parser == "lalr"


@pytest.fixture
def fresh_parser() -> Iterator[None]:
    """Clear the cached parser before and after the test."""
    language.cache_clear()
    yield
    language.cache_clear()


PATTERN = """
    pattern P {
        order CausalOrder(gap = 5 s);  // a comment
        event Read = type == "read" && !(n >= 3 || host("a*"));
        B = Causal(Read, A) && n == A.n; A = Read;
        find any A (B | Read)+; within 10 s;
    }
"""


@pytest.mark.usefixtures("fresh_parser")
def test_parser_is_built_once_and_loaded_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETAL_CACHE", str(tmp_path / "cache"))
    made = language()
    (kept,) = (tmp_path / "cache").iterdir()
    whole, when_ns = kept.read_bytes(), kept.stat().st_mtime_ns
    language.cache_clear()
    loaded = language()
    assert kept.stat().st_mtime_ns == when_ns
    assert loaded.parse(PATTERN) == made.parse(PATTERN)
    other = Lark('start: "a"', parser="lalr")
    of_another_grammar = io.BytesIO(b"0" * 64 + b"\n")
    of_another_grammar.seek(0, io.SEEK_END)
    other.save(of_another_grammar)
    # It could be loaded, but as a parser of another language.
    changed = whole.replace(b"within", b"wythin")
    cut = whole[: len(whole) // 2]
    for damaged in (b"", cut, b"no parser", of_another_grammar.getvalue(), changed):
        kept.write_bytes(damaged)
        language.cache_clear()
        assert language().parse(PATTERN) == made.parse(PATTERN)
        assert kept.read_bytes() != damaged
        assert list((tmp_path / "cache").iterdir()) == [kept]


@pytest.mark.usefixtures("fresh_parser")
@pytest.mark.parametrize("homeless", [False, True])
def test_parser_is_built_without_a_cache(
    homeless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if homeless:
        for name in ("KETAL_CACHE", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as of an unknown user
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("KETAL_CACHE", str(tmp_path / "file" / "cache"))
    made: list[str] = []

    def making(text: str, **options: Any) -> Lark:
        made.append(text)
        return Lark(text, **options)

    monkeypatch.setattr("ketal.grammar.reader.Lark", making)
    assert language().parse(PATTERN).data == "start"
    assert made == [grammar()]


def test_lark_is_not_imported_before_a_text_is_read() -> None:
    code = (
        "import sys, ketal.grammar; assert 'lark' not in sys.modules;"
        "ketal.grammar.render_guard; assert 'lark' not in sys.modules;"
        "ketal.grammar.parse('pattern P { event E = true; check E; }');"
        "assert 'lark' in sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_guards_and_bodies_are_rendered_separately() -> None:
    stack = parse(REPLICATED_STACK).patterns[0]
    assert render_guard(stack.steps[1].guard) == "Causal(Push, A) || Causal(Pop, A)"
    assert render_body(stack.body) == "(A B* C)*"
    assert render_guard(ast.Comparison("==", ast.Attribute(("order",)), ast.Literal(1))) == (
        "data.order == 1"
    )


def test_group_beside_a_not_is_its_neighbour() -> None:
    """Elsewhere a group is flattened into the surrounding sequence."""
    a, b, c, absent = ast.Step("A"), ast.Step("B"), ast.Step("C"), ast.Absent(ast.Name("N"))
    stars = ast.Repeat(b, 0, None)
    bodies: dict[str, tuple[ast.Body | ast.Absent, ...]] = {
        "(A B*) not N C": (ast.Sequence((a, stars)), absent, c),
        "A not N (B* C)": (a, absent, ast.Sequence((stars, c))),
        "A B* not N C": (a, stars, absent, c),
        "A (B* C) A not N B": (a, stars, c, a, absent, b),
    }
    for text, items in bodies.items():
        assert pattern(f"find next {text};").body == ast.Sequence(items)
