"""Syntax errors by example: what a text that does not parse was meant to be.

A parser knows which tokens it could have taken; an author wants to know what is wrong.
`RULES` is a table of known mistakes, each with the situation that it applies to, the
sentence, the hint, and examples; a test parses every example and expects that very rule
to apply. Where none does, the sentence names what was expected and what stands there,
in words of the language.

The one rule: no sentence names a token of the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ketal.errors import Diagnostic, Span, nearest
from ketal.model.language_words import STATEMENTS

CLOSING = {"(": ")", "[": "]", "{": "}"}
LABELS = {
    "event": "the event", "param": "the parameter", "order": "the order", "at": "`at`",
    "partition": "the partition", "topology": "the topology", "check": "the check",
    "find": "the find", "within": "the window", "return": "the return", "limit": "the limit",
    "mode": "the mode", "on": "`on violation`", "initial": "the initial state",
    "final": "the final states", "pattern": "the pattern",
}  # fmt: skip
_FOUND = re.compile(
    r'"(?:[^"\\\n]|\\[^\n])*"|'
    r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|&&|\|\||==|!=|<=|>=|->|\.\.|[=!]?~|.",
    re.DOTALL,
)
_OPERATORS = frozenset({"AND", "OR", "COMPARE", "STAR", "SLASH", "PERCENT", "PLUS", "MINUS"})
_VALUE = frozenset({"STRING", "NUMBER", "TRUE", "FALSE", "MINUS", "LSQB", "LPAR", "NAME"})
_GUARD = frozenset({"CALL", "HOST", "ORIGIN", "EXISTS", "CAUSAL", "CONC", "LOCALHOST", "BANG"})
_REPETITION = frozenset({"STAR", "PLUS", "QUESTION", "REPETITION"})
_BODY = frozenset({"NAME", "LPAR", "LBRACE", "NOT", "AUTOMATON", "STRICT", "NEXT", "ANY"})
_STATEMENT = frozenset(word.upper() for word in STATEMENTS) | {"NAME"}
_WORDS = {
    "SEMICOLON": "`;`", "COMMA": "`,`", "EQUAL": "`=`", "LPAR": "`(`", "RPAR": "`)`",
    "LBRACE": "`{`", "RBRACE": "`}`", "LSQB": "`[`", "RSQB": "`]`", "ARROW": "`->`",
    "VBAR": "`|`", "AMPERSAND": "`&`", "DOT": "`.`", "STRING": "a string in double quotes",
    "NUMBER": "a number", "NAME": "a name", "REGEX": "a regular expression in slashes",
    "GLOB": "a name, `*` or `..`", "$END": "the end of the file",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bracket:
    """An open bracket; `block` where it is the brace of a pattern or a block."""

    text: str
    line: int
    column: int
    block: bool


@dataclass(frozen=True)
class Situation:
    """Where the reader stopped, and what it knew.

    Parameters
    ----------
    text : str
        The whole file.
    position : int
        Where the text cannot go on.
    expects : frozenset of str
        The grammar's tokens that could have come.
    before, before_kind, before_start
        The last token that was taken, its kind and where it begins.
    brackets : tuple of Bracket
        The open brackets, outermost first.
    statement : tuple of str
        The tokens of the statement that is being read.
    pattern : str
        The last pattern that was begun.
    """

    text: str
    position: int
    expects: frozenset[str]
    before: str
    before_kind: str
    before_start: int
    brackets: tuple[Bracket, ...]
    statement: tuple[str, ...]
    pattern: str

    @cached_property
    def found(self) -> str:
        """The text there: a word, a number, an operator or a character."""
        match = _FOUND.match(self.text, self.position)
        return match.group() if match else ""

    @cached_property
    def rest(self) -> str:
        """The text from there on, a little of it."""
        return self.text[self.position : self.position + 80]

    @property
    def ended(self) -> bool:
        """Whether the file ends there."""
        return self.position >= len(self.text)

    @property
    def word(self) -> bool:
        """Whether a word stands there."""
        return self.found[:1].isidentifier()

    @property
    def keyword(self) -> str:
        """The word that the statement begins with."""
        return self.statement[0] if self.statement else ""

    @property
    def after_operand(self) -> bool:
        """Whether an operator of a guard could have come."""
        return "AND" in self.expects

    @property
    def in_body(self) -> bool:
        """Whether a step of a body could have come."""
        return "NOT" in self.expects

    @property
    def new_line(self) -> bool:
        """Whether a line ends between the last token and there."""
        return "\n" in self.text[self.before_end : self.position]

    @property
    def open(self) -> Bracket | None:
        """The innermost open bracket of an expression or a body."""
        return self.brackets[-1] if self.brackets and not self.brackets[-1].block else None

    @property
    def before_end(self) -> int:
        """Where the last token ends."""
        return self.before_start + len(self.before)

    def span(self, at: str) -> Span:
        """Return the span of what was found, of the token before it, or just behind that."""
        if at == "before":
            return self._span(self.before_start, len(self.before))
        if at == "behind":
            return self._span(self.before_end, 1)
        return self._span(self.position, 0 if self.ended or self.found == "\n" else len(self.found))

    def _span(self, position: int, width: int) -> Span:
        line = self.text.count("\n", 0, position) + 1
        column = position - (self.text.rfind("\n", 0, position) + 1) + 1
        return Span(line, column, line, column + max(width, 1))


@dataclass(frozen=True, slots=True)
class Rule:
    """A known mistake: the situation it applies to, message and hint, and examples of it.

    `message` and `hint` may name `{found}`, `{before}`, `{keyword}`, `{what}`
    (the statement in words), `{pattern}`, `{open}` and `{near}`.
    """

    when: Callable[[Situation], bool]
    message: str
    hint: str
    examples: tuple[str, ...]
    at: str = "found"
    """The place: at what was `found`, at the token `before` it, or just `behind` that."""
    code: str = "K001"


def _near_statement(s: Situation) -> str:
    return nearest(s.before, STATEMENTS, 0.7) or ""


def _near_top(s: Situation) -> str:
    return nearest(s.found, ("pattern", "event", "param"), 0.7) or ""


def _misses_semicolon(s: Situation) -> bool:
    return (
        "SEMICOLON" in s.expects
        and s.open is None
        and (s.ended or s.found == "}" or (s.word and s.new_line))
    )


RULES: tuple[Rule, ...] = (
    # --- characters ---
    Rule(
        lambda s: s.found == '"',
        "this string has no closing quote on its line",
        'a quote inside a string is written `\\"`, a line end `\\n`',
        ('pattern P { event E = type == "x;\n find next E; }',),
        code="K002",
    ),
    Rule(
        lambda s: s.rest.startswith("/*"),
        "this comment is not closed",
        "close it with `*/`",
        ("pattern P { /* a comment", "/* event E = true;"),
        code="K002",
    ),
    Rule(
        lambda s: s.found in ("'", "“", "”", "„", "\u2018", "\u2019", "`"),
        "a string stands in double quotes",
        'write "text"',
        ("pattern P { event E = type == 'x'; }", "pattern P { event E = type == “x”; }"),
        code="K002",
    ),
    Rule(
        lambda s: s.found == "#" or (s.rest.startswith("--") and not s.statement),
        "a comment begins with `//`",
        "write `// …`, or `/* … */`",
        ("# forks\npattern P { }", "pattern P { -- forks\n }"),
        code="K002",
    ),
    Rule(
        lambda s: s.rest.startswith("--") and "MINUS" in s.expects,
        "`--` begins no comment and is no operator",
        "a comment is `// …` or `/* … */`; two minus signs stand apart: `x - -1`",
        ("pattern P { event E = x == 1 -- forks\n; }", "pattern P { event E = x == --1; }"),
        code="K002",
    ),
    Rule(
        lambda s: not s.found.isprintable() and s.found != "\n",
        "the character {code} looks like a space or like nothing",
        "write a plain space, or remove it",
        (
            "pattern P {\u00a0 }",
            "pattern P { event E = x\u2003== 1; }",
            "pattern P { event E = x\u200b == 1; }",
        ),
        code="K002",
    ),
    Rule(
        lambda s: s.found.isalpha() and not s.found.isascii(),
        "`{found}` cannot stand in a name",
        'names are made of A-Z a-z 0-9 _; an attribute of another name is written data["größe"]',
        ("pattern P { event E = größe > 1; }", "pattern P { event Ä = true; }"),
        code="K002",
    ),
    Rule(
        lambda s: s.found == "." and (s.rest[1:2].isdigit() or s.before_kind == "NUMBER"),
        "a number begins and ends with a digit",
        "write `0.5`, `5.0`",
        ("pattern P { event E = x > .5; }", "pattern P { event E = x > 5.; }"),
        code="K002",
    ),
    # --- files of another kind ---
    Rule(
        lambda s: s.found in ("{", "[") and not s.before,
        "a pattern file does not begin with `{found}`",
        "is it a log? The pattern comes first: `ketal run PATTERN LOG`",
        ('{"node": "a", "type": "write", "clock": {"a": 1}}', '[{"traceId": "5b8efff7"}]'),
    ),
    # --- operators of guards ---
    Rule(
        lambda s: s.after_operand and s.found in ("and", "AND", "And", "&"),
        "`{found}` is no operator",
        "write `&&`",
        (
            "pattern P { event E = On and b; }",
            "pattern P { event E = a == 1 & b == 2; }",
            "pattern P { event E = (On AND b) ; }",
        ),
    ),
    Rule(
        lambda s: s.after_operand and s.found in ("or", "OR", "Or", "|"),
        "`{found}` is no operator",
        "write `||`",
        ("pattern P { event E = On or b == 2; }", "pattern P { event E = X | Y; }"),
    ),
    Rule(
        lambda s: s.after_operand and s.before_kind == "NAME" and s.before in ("and", "AND"),
        "`{before}` is no operator",
        "write `&&`",
        ("pattern P { event E = a == 1 and b == 2; }",),
        at="before",
    ),
    Rule(
        lambda s: s.after_operand and s.before_kind == "NAME" and s.before in ("or", "OR"),
        "`{before}` is no operator",
        "write `||`",
        ("pattern P { event E = a == 1 or b == 2; }",),
        at="before",
    ),
    Rule(
        lambda s: s.before_kind == "NAME" and s.before in ("not", "NOT") and s.after_operand,
        "`{before}` is no operator of a guard",
        "write `!`; `not` stands between the steps of a body",
        ("pattern P { event E = not localhost; }", "pattern P { event E = a == 1 && not X; }"),
        at="before",
    ),
    Rule(
        lambda s: s.found in ("=", "==") and s.before == "==",
        "`===` is no operator",
        "write `==`",
        ("pattern P { event E = a === 1; }",),
    ),
    Rule(
        lambda s: s.before in ("<", ">") and s.found in ("=", ">", "<", ">=", "=="),
        "`{before}{found}` is no operator",
        "the comparisons are `==`, `!=`, `<`, `<=`, `>` and `>=`",
        ("pattern P { event E = a <> 1; }", "pattern P { event E = a < = 1; }"),
    ),
    Rule(
        lambda s: s.after_operand and s.rest.startswith(("=>", "=<")),
        "`=>` and `=<` are no operators",
        "write `>=` or `<=`",
        ("pattern P { event E = a => 1; }", "pattern P { event E = a =< 1; }"),
    ),
    Rule(
        lambda s: s.after_operand and s.found in ("~", "=~"),
        "`{found}` is no operator",
        "write `matches /…/`",
        (
            'pattern P { event E = type =~ "x.*"; }',
            "pattern P { event E = type =~ /x.*/; }",
            "pattern P { event E = type ~ /x.*/; }",
        ),
    ),
    Rule(
        lambda s: s.after_operand and s.found == "!~",
        "`!~` is no operator",
        "write `!(… matches /…/)`",
        ("pattern P { event E = type !~ /x.*/; }",),
    ),
    Rule(
        lambda s: s.found == "~" and "BANG" in s.expects,
        "`~` is no operator",
        "write `!`",
        ("pattern P { event E = ~X; }", "pattern P { event E = a == 1 && ~(b == 2); }"),
    ),
    Rule(
        lambda s: s.after_operand and s.found == "=" and "COMPARE" in s.expects,
        "`=` does not compare",
        "write `==`",
        ("pattern P { event E = type = 1; }", 'pattern P { A = X && (b.c = "d"); }'),
    ),
    Rule(
        lambda s: (
            s.after_operand
            and s.found in ("==", "!=", "<", "<=", ">", ">=", "in", "matches", "=")
            and "COMPARE" not in s.expects
        ),
        "comparisons do not chain",
        "write `a < b && b < c`",
        ("pattern P { event E = 1 < a < 3; }", "pattern P { event E = a == b == c; }"),
    ),
    Rule(
        lambda s: (
            s.after_operand
            and s.found
            in ("is", "equals", "eq", "like", "contains", "startswith", "between", "xor", "implies")
        ),
        "`{found}` is no operator",
        "guards have `==`, `!=`, `<`, `<=`, `>`, `>=`, `in […]` and `matches /…/`",
        ('pattern P { event E = type is "x"; }', 'pattern P { event E = type like "x%"; }'),
    ),
    Rule(
        lambda s: s.after_operand and s.found == "not",
        "`not` is no operator of a guard",
        "write `!(x in [1, 2])`, `!(x matches /…/)`",
        ("pattern P { event E = x not in [1]; }",),
    ),
    Rule(
        lambda s: s.before_kind == "REGEX" and s.word and set(s.found) <= set("gimsux"),
        "a regular expression has no flags behind it",
        "write `/(?i)…/` to ignore case, `/(?s)…/` to have `.` match a line end",
        ("pattern P { event E = x matches /a/i; }",),
    ),
    Rule(
        lambda s: s.found == "(" and s.after_operand and s.text[s.before_start - 1] == ".",
        "a value has no methods",
        "compare it: `x == 1`, `x matches /…/`; or register a guard, `my_guard(x)`",
        ('pattern P { event E = x.startswith("a"); }', "pattern P { event E = x.length() > 1; }"),
    ),
    Rule(
        lambda s: s.expects == {"REGEX"},
        "expected a regular expression in slashes after `matches`",
        "write `matches /…/`; a `/` inside is written `\\/`, and an empty one `/(?:)/`",
        (
            'pattern P { event E = type matches "x"; }',
            "pattern P { event E = type matches //;\n }",
            "pattern P { event E = type matches /x; }",
        ),
    ),
    Rule(
        lambda s: s.before == "in" and s.expects == {"LSQB"},
        "expected a list in brackets after `in`",
        "write `in [1, 2]`",
        ("pattern P { event E = x in (1, 2); }", "pattern P { event E = x in y; }"),
    ),
    Rule(
        lambda s: s.before == "[" and s.expects == {"STRING"} and not s.found.startswith('"'),
        "no element of a list can be asked for",
        "have the program log it as an attribute of its own, or register a guard; in brackets "
        'stands the name of an attribute: `data["a name"]`',
        (
            "pattern P { event E = xs[0] == 1; }",
            "pattern P { event E = data.xs[0].y == 1; }",
            "pattern P { event E = xs[i] == 1; }",
        ),
    ),
    # --- guards that are words ---
    Rule(
        lambda s: (
            s.before in ("host", "origin", "exists", "call", "Causal", "Conc")
            and s.expects == {"LPAR"}
            and s.keyword != "at"
        ),
        "`{before}` is a guard and wants its argument in parentheses",
        "write `{before}(…)`; an attribute of that name is `data.{before}`",
        (
            'pattern P { event E = host == "a"; }',
            "pattern P { event E = exists x; }",
            "pattern P { A = Causal X; }",
            'pattern P { event E = x == 1 && origin in ["a"]; }',
        ),
        at="before",
        code="K010",
    ),
    Rule(
        lambda s: s.expects == {"GLOB"} and s.found == "(",
        "`call` wants the type of the result before `Type.method`",
        "write `call(* Type.method(..))`; `*` is any type",
        ("pattern P { event E = call(Stack.push(..)); }",),
    ),
    Rule(
        lambda s: s.before_kind == "GLOB" and s.expects == {"LPAR"} and s.found == ")",
        "`call` wants the types of the arguments behind `Type.method`",
        "write `call(* Type.method(..))`; `..` is any arguments",
        ("pattern P { event E = call(* Stack.push); }",),
    ),
    Rule(
        lambda s: "GLOB" in s.expects and s.found.startswith('"'),
        "the type and method of a `call` stand without quotes",
        "write `call(* Type.method(..))`",
        ('pattern P { event E = call("Stack.push"); }',),
    ),
    # --- names ---
    Rule(
        lambda s: s.found == "=" and s.statement in (("event",), ("param",)),
        "expected a name after `{before}`",
        "write `{before} Name = …;`",
        ("pattern P { event = true; }", "param = 3;"),
    ),
    Rule(
        lambda s: s.found == "=" and s.before == s.keyword and s.before in STATEMENTS,
        "`{before}` is a word of the language and names no step",
        "choose another name",
        (
            "pattern P { order = X; }",
            "pattern P { limit = 3; }",
            "pattern P { on = X; }",
            "pattern P { find = X; }",
            "pattern P { check = X; find any check; }",
        ),
        at="before",
        code="K010",
    ),
    # --- bodies ---
    Rule(
        lambda s: (
            s.in_body
            and s.found in (";", ")")
            and "SEMICOLON" not in s.expects
            and s.before in ("check", "find", "strict", "next", "any", "(")
        ),
        "the body is empty",
        "name at least one step: `find next A B`",
        ("pattern P { check ; }", "pattern P { find any; }", "pattern P { check A (); }"),
    ),
    Rule(
        lambda s: s.before_kind in _REPETITION and s.in_body and s.found in ("*", "+", "?"),
        "a repetition cannot be repeated",
        "write `(A*)?`, with parentheses",
        ("pattern P { check A**; }", "pattern P { find next A+?; }"),
    ),
    Rule(
        lambda s: (
            s.before == "{"
            and s.in_body
            and s.found[:1].isdigit()
            and re.fullmatch(r"[*+?]|\{.+\}", "".join(s.statement[-2:-1])) is not None
        ),
        "a repetition cannot be repeated",
        "write `(A{2}){3}`, with parentheses; counts inside of counts multiply, up to the limit "
        "states_max",
        ("pattern P { check A*{2}; }", "pattern P { check A{1000}{1000}; }"),
    ),
    Rule(
        lambda s: (
            s.before == "{"
            and s.open is not None
            and s.in_body
            and (s.found[:1].isdigit() or s.found in (",", "-", "."))
        ),
        "a repetition count is written `{2}`, `{2,5}` or `{2,}`, in whole numbers",
        "for at most five write `{0,5}`",
        ("pattern P { check A{,3}; }", "pattern P { check A{1.5}; }", "pattern P { check A{-1}; }"),
    ),
    Rule(
        lambda s: s.found == "}" and s.open is not None and s.open.text == "{",
        "braces hold two blocks or more, in any order: `{A & B}`",
        "write `(A)` for a group; a `}` that ends the pattern wants a `;` before it",
        ("pattern P { check {A}; }", "pattern P { check {}; }"),
    ),
    Rule(
        lambda s: s.before in ("&", "|") and s.found == s.before and s.in_body,
        "`{before}{found}` stands in guards, not between steps",
        "between steps write `{before}`; steps that may come in any order are `{A & B}`",
        ("pattern P { check A || B; }", "pattern P { check {A && B}; }"),
    ),
    Rule(
        lambda s: s.in_body and s.found in ("&", "&&") and "VBAR" in s.expects,
        "`{found}` does not stand between steps here",
        "steps that may come in any order are `{A & B}`; a guard is declared as a step",
        ("pattern P { check A & B; }", "pattern P { check A && B; }"),
    ),
    Rule(
        lambda s: s.in_body and s.found == "," and s.before != "{",
        "steps follow each other without a comma",
        "write `A B`",
        ("pattern P { find next A, B; }", "pattern P { check (A, B)*; }"),
    ),
    Rule(
        lambda s: s.in_body and s.found in ("->", ">"),
        "`->` does not stand between steps",
        "write `A B` for one after the other; happened-before is `Causal(…)` in a step's guard",
        ("pattern P { find next A -> B; }",),
    ),
    Rule(
        lambda s: s.in_body and s.found == "!",
        "`!` does not stand in a body",
        "write `A not N B`: no N between A and B",
        ("pattern P { find next A !B C; }",),
    ),
    Rule(
        lambda s: s.in_body and s.before in ("within", "limit") and s.found[:1].isdigit(),
        "expected `;` before `{before}`",
        "write `;` before `{before}`: a body ends with `;`",
        ("pattern P { find A within 5 s; }", "pattern P { find any A B limit 3; }"),
        at="before",
    ),
    Rule(
        lambda s: s.in_body and s.statement[-2:-1] == ("return",) and s.found == "=",
        "expected `;` before `return`",
        "write `;` before `return`: a body ends with `;`",
        ("pattern P { find any A B return x = A.x; }",),
        at="before",
    ),
    Rule(
        lambda s: s.in_body and s.found in ("==", "=", "!=", "<", "<=", ">=", "."),
        "a body is made of steps; a guard cannot stand in it",
        "declare a step, `A = …;`, and name it here",
        ('pattern P { find next type == "x"; }', "pattern P { find next A.x; }"),
    ),
    Rule(
        lambda s: s.before == "not" and "CALL" in s.expects and "BANG" not in s.expects,
        "expected the name of an event or a guard in parentheses after `not`",
        "write `A not N B` or `A not (N && x > 1) B`",
        ("pattern P { find next A not; }", "pattern P { find next A not {B} C; }"),
    ),
    Rule(
        lambda s: s.found in ("*", "+", "?") and "VBAR" in s.expects and "STAR" not in s.expects,
        "what `not` bars cannot be repeated",
        "`A not N B` bars every N between A and B already",
        ("pattern P { find next A not N* B; }",),
    ),
    # --- brackets ---
    Rule(
        lambda s: (
            s.open is not None
            and (s.ended or s.found in (";", "}", ")", "]"))
            and s.found != CLOSING[s.open.text]
        ),
        "the `{open}` of line {open_line}, column {open_column} is not closed",
        "",
        (
            "pattern P { event E = (x == 1; }",
            "pattern P { event E = x in [1, 2; }",
            "pattern P { check (A B; }",
            'pattern P { event E = host("a" }',
            "pattern P { event E = (x == 1",
        ),
    ),
    Rule(
        lambda s: (s.found in (")", "]") and s.open is None) or (s.found == "}" and not s.brackets),
        "this `{found}` closes nothing",
        "remove it",
        ("pattern P { event E = x == 1); }", "pattern P { check A; } }", "pattern P { check A]; }"),
    ),
    # --- statements ---
    Rule(
        lambda s: s.ended and "RBRACE" in s.expects,
        "the file ends inside of pattern `{pattern}`",
        "close it with `}`",
        ("pattern P {", "pattern P { event E = true;"),
    ),
    Rule(
        _misses_semicolon,
        "expected `;` after {what}",
        "",
        (
            "pattern P { order CausalOrder\n event E = true; }",
            "pattern P { event E = true }",
            "pattern P { A = X\n B = Y; }",
            "pattern P { check A B }",
            "pattern P { check automaton { initial q0 } }",
        ),
        at="behind",
    ),
    Rule(
        lambda s: (
            s.expects == {"EQUAL"} and s.statement == (s.before,) and bool(_near_statement(s))
        ),
        "`{before}` begins no statement",
        "did you mean `{near}`?",
        (
            "pattern P { odrer CausalOrder; }",
            "pattern P { checks A; }",
            "pattern P { evnt E = 1; }",
        ),
        at="before",
    ),
    Rule(
        lambda s: s.expects == {"EQUAL"} and s.statement == (s.before,) and s.found in (":", ":="),
        "expected `=` after the name of the step",
        "a step is declared `A = guard;`",
        ("pattern P { A: X; }", "pattern P { A := X; }"),
    ),
    Rule(
        lambda s: s.expects == {"EQUAL"} and s.statement == (s.before,),
        "`{before}` begins no statement",
        "a step is declared `NAME = guard;`, a body follows `check` or `find`",
        ("pattern P { A B*; }", "pattern P { Push; }", "pattern P { select A; }"),
        at="before",
    ),
    Rule(
        lambda s: "PATTERN" in s.expects and s.found in STATEMENTS | {"step"},
        "`{found}` stands inside of a pattern",
        "begin with `pattern Name {`; outside stand `event` and `param`",
        ("find any A B;", "event E = true;\norder CausalOrder;"),
    ),
    Rule(
        lambda s: "PATTERN" in s.expects and bool(_near_top(s)),
        "`{found}` begins nothing",
        "did you mean `{near_top}`?",
        ("patern P { }", "events E = true;"),
    ),
    Rule(
        lambda s: s.keyword == "return" and s.expects == {"EQUAL"},
        "every value that `return` gives has a name",
        "write `return hash = First.hash`; `return count` counts the matches",
        ("pattern P { return First.hash; }", "pattern P { return a = A.x, B.y; }"),
    ),
    Rule(
        lambda s: s.found in (";", ",") and s.before in (",", "(", "["),
        "something is missing after `{before}`",
        "",
        (
            "pattern P { partition by a, ; }",
            "pattern P { event E = x in [1, , 2]; }",
            "pattern P { order CausalOrder(, total); }",
        ),
    ),
    Rule(
        lambda s: s.found == ";" and not s.statement,
        "this `;` ends nothing",
        "remove it",
        ("pattern P { event E = true;; }", ";"),
    ),
)


def diagnose(situation: Situation) -> Diagnostic:
    """Return the diagnostic of a text that does not parse."""
    rule = rule_for(situation)
    if rule is None:
        message = f"expected {_describe(situation)}, found {_quoted(situation)}"
        return Diagnostic("K001", "error", message, situation.span("found"), _form(situation))
    words = _fillings(situation)
    return Diagnostic(
        rule.code,
        "error",
        _fill(rule.message, words),
        situation.span(rule.at),
        _fill(rule.hint, words) or _form(situation),
    )


_BODY_FORM = (
    "a body is made of steps: `A B`, `A | B`, `A*`, `A{2}`, `(A B)+`, `A not N B`, `{A & B}`"
)
_FORMS = {
    "pattern": "write `pattern NAME { ... }`",
    "event": "write `event NAME = guard;`: a comparison, `call(* Type.method(..))`, "
    '`host("a")`, joined by `&&`, `||`, `!`',
    "param": "write `param w = 10 s;`",
    "order": "write `order CausalOrder;`, `order CausalOrder(gap = 30 s);` or `order arrival;`",
    "at": "write `at every node;`, `at every node all;`, `at every node receiving;` or "
    '`at host("db-*");`',
    "partition": "write `partition by key;`",
    "check": _BODY_FORM,
    "find": _BODY_FORM,
    "within": "write `within 5 s;` or `within 100 events;`",
    "return": "write `return name = A.x;` or `return count;`",
    "limit": "write `limit 10;`",
    "on": "write `on violation halt;`, `resume` or `skip`",
    "mode": "write `mode possibly;` or `mode definitely;`",
    "topology": "write `topology { p -> q; q -> r relaxed; }`",
    "initial": "write `initial q0;`",
    "final": "write `final q1, q2;`",
    "automaton": "write `automaton { initial q0; final q1; q0 -> q1 on A; }`",
}
"""Keyword → how its statement is written."""


def _form(s: Situation) -> str:
    """Return a hint where no rule has one: the word that was meant, or the statement's form."""
    if "PATTERN" in s.expects:
        return "write `pattern NAME { … }`; outside of patterns stand `event` and `param`"
    if "SEMICOLON" in s.expects and s.found in _FORMS:
        return f"is a `;` missing before `{s.found}`?"
    words = {_keyword(name) for name in s.expects if name not in _WORDS}
    meant = nearest(s.found, {word for word in words if word.isalpha()}, 0.7)
    if meant is not None and meant != s.found:
        return f"did you mean `{meant}`?"
    if s.open is not None and s.found in ("", ";", "}"):
        return f"is a `{CLOSING[s.open.text]}` missing?"
    if "SEMICOLON" in s.expects and (s.new_line or s.ended or s.found == "}"):
        return "end the statement with `;`"
    if "ARROW" in s.expects or "->" in s.statement:
        return "an edge is written `q0 -> q1 on A;`, in a topology `p -> q;`"
    return _FORMS.get(s.keyword, "write `NAME = guard;`, or a statement as `find next A B;`")


def rule_for(situation: Situation) -> Rule | None:
    """Return the first rule of the table that applies."""
    return next((rule for rule in RULES if rule.when(situation)), None)


def _fillings(s: Situation) -> dict[str, str]:
    bracket = s.open or Bracket("", 0, 0, False)
    return {
        "found": s.found,
        "code": f"U+{ord(s.found[0]):04X}" if s.found else "",
        "before": s.before,
        "keyword": s.keyword,
        "what": LABELS.get(s.keyword, "the edge" if "->" in s.statement else "the step"),
        "pattern": s.pattern,
        "open": bracket.text,
        "open_line": str(bracket.line),
        "open_column": str(bracket.column),
        "near": _near_statement(s),
        "near_top": _near_top(s),
    }


def _fill(sentence: str, words: dict[str, str]) -> str:
    # Sentences show braces of the language, so only known names are filled in.
    return re.sub(r"\{([a-z_]+)\}", lambda m: words.get(m.group(1), m.group()), sentence)


def _quoted(s: Situation) -> str:
    if s.ended:
        return "the end of the file"
    if s.found == "\n":
        return "the end of the line"
    return f"`{s.found}`" if s.found.isprintable() else f"the character U+{ord(s.found[0]):04X}"


def _describe(s: Situation) -> str:
    """Return in words of the language what could have come."""
    left = set(s.expects)
    parts: list[str] = []

    def take(group: frozenset[str], words: str) -> None:
        parts.append(words)
        left.difference_update(group)

    if "SEMICOLON" in left:
        take(frozenset({"SEMICOLON"}), f"`;` after {_fillings(s)['what']}")
    if "EVENT" in left and "ORDER" in left:
        take(_STATEMENT | {"RETURN"}, "a statement")
    if "NOT" in left:
        take(_BODY, "a step")
    if {"STAR", "QUESTION"} <= left:
        take(_REPETITION, "a repetition")
    if {"STRING", "BANG"} <= left:
        take(
            _VALUE | _GUARD,
            "a guard" if s.keyword not in LABELS or s.keyword == "event" else "a value",
        )
    elif {"STRING", "NUMBER"} <= left:
        take(_VALUE | _GUARD, "a value")
    if "AND" in left:
        # After a name much may come; what continues a name is not worth saying.
        take(_OPERATORS | {"IN", "MATCHES", "DOT", "LSQB", "LPAR", "NAME"}, "an operator")
    parts += sorted(
        {_WORDS.get(name, f"`{_keyword(name)}`") for name in left}, key=lambda w: (len(w), w)
    )
    parts = parts[:4]
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " or " + parts[-1]


def _keyword(name: str) -> str:
    return {"CAUSAL": "Causal", "CONC": "Conc", "AND": "&&", "OR": "||", "BANG": "!"}.get(
        name, name.lower()
    )
