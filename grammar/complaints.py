"""Messages for syntax errors, from a table of known mistakes.

A parser knows which tokens it could have taken; an author wants to know what is wrong. `RULES` is a
table of known mistakes, each with a test whether it applies, a message and a hint. The tests have
examples of every mistake, each with its message (`tests/grammar/malformed.toml`). If no rule
applies, the message names what was expected and what was found, in words of the language.

The one rule: no message names a token of the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lark import Token

from ketal.errors import Diagnostic, Span, nearest
from ketal.model.guard_functions import GUARD_WORDS
from ketal.model.language_words import STATEMENTS

NOT_HINT = "write `!`; use `not` only between the steps of a body"
CLOSING = {"(": ")", "[": "]", "{": "}"}
LABELS = {word: f"the {word}" for word in (*STATEMENTS, "pattern")} | {
    "param": "the parameter", "at": "`at`", "within": "the window", "on": "`on violation`",
    "initial": "the initial state", "final": "the final states",
}  # fmt: skip
"""First word of a statement → the statement."""
_FOUND = re.compile(
    r'"(?:[^"\\\n]|\\[^\n])*"|'
    r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|&&|\|\||==|!=|<=|>=|->|\.\.|[=!]?~|.",
    re.DOTALL,
)
_FILE_NAME = re.compile(r"[^\n{;]*\.ketal")
_OPERATORS = frozenset({"AND", "OR", "COMPARE", "STAR", "SLASH", "PERCENT", "PLUS", "MINUS"})
_REPLACEMENTS = {
    **dict.fromkeys(("and", "AND", "And", "&"), "&&"),
    **dict.fromkeys(("or", "OR", "Or", "|"), "||"),
    **dict.fromkeys(("~", "=~"), "matches /…/"),
    "!~": "!(… matches /…/)",
}
"""Operator of another language → the operator to write instead."""
_STATEMENTS_ELSEWHERE = {
    "automaton": "check automaton",
    "keyby": "partition by",
    "select": "return",
    "timeout": "within",
}
"""Statement of another language, in lower case → the words that begin the statement here."""
_GUARD_SIGNS = ("==", "=", "!=", "<", "<=", ">", ">=", ".", "&&")
_RELATIONS = "for happened-before, write `Causal(B, A)`; for concurrency, `Conc(B, A)`"
_VALUE = frozenset({"STRING", "NUMBER", "TRUE", "FALSE", "MINUS", "LSQB", "LPAR", "NAME"})
_GUARD = frozenset({"CALL", "HOST", "ORIGIN", "EXISTS", "CAUSAL", "CONC", "LOCALHOST", "BANG"})
_BODY_WORDS = ("check", "find", "strict", "next", "any")
_REPETITION = frozenset({"STAR", "PLUS", "QUESTION", "REPETITION"})
_BODY = frozenset({"NAME", "LPAR", "LBRACE", "NOT", "AUTOMATON", "STRICT", "NEXT", "ANY"})
_STATEMENT = frozenset(word.upper() for word in STATEMENTS) | {"NAME"}
SORTS = {
    "STRING": "a string in double quotes", "NUMBER": "a number", "NAME": "a name",
    "REGEX": "a regular expression in slashes", "GLOB": "a name, `*` or `..`",
    "MINUS": "`-`", "COMPARE": "a comparison", "REPETITION": "a repetition",
    "$END": "the end of the file",
}  # fmt: skip
"""Token of the grammar with many texts → what it is."""
_NO_TOKEN = Token("", "", 0)


@dataclass(frozen=True, slots=True)
class Bracket:
    """An open bracket; `block` is True for the brace of a pattern, a topology or an automaton."""

    text: str
    line: int
    column: int
    block: bool


@dataclass
class Situation:
    """The state of the reader: the tokens that it has read, and the place where it stopped."""

    text: str  # the whole file
    before: Token = _NO_TOKEN  # the last token that the parser has accepted
    count: int = 0  # the number of accepted tokens
    brackets: list[Bracket] = field(default_factory=list)  # the open brackets, outermost first
    statement: list[str] = field(default_factory=list)  # the tokens of the current statement
    pattern: str = ""  # the name of the pattern that is not closed yet
    position: int = 0  # the position of the error
    expects: frozenset[str] = frozenset()
    """The grammar's tokens that could follow at that position."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The text of each of the grammar's tokens that has only one."""

    def accept(self, token: Token) -> None:
        """Update the state with a token that the parser has accepted."""
        text, before = str(token), self.before
        self.before = token
        self.count += 1
        ends = text == ";"
        if token.type in ("STRING", "REGEX", "GLOB", "REPETITION"):
            pass
        elif text in CLOSING:
            # The brace of a block ends the head before it; statements follow.
            heads = (["pattern"], ["topology"])
            ends = text == "{" and (self.statement[:1] in heads or before == "automaton")
            self.brackets.append(Bracket(text, token.line or 1, token.column or 1, ends))
        elif text in CLOSING.values() and self.brackets:
            ends = self.brackets.pop().block
            if not self.brackets:
                self.pattern = ""
        if self.statement == ["pattern"]:
            self.pattern = text
        if ends:
            self.statement = []
        else:
            self.statement.append(text)

    @property
    def before_start(self) -> int:
        """The position where the last token begins."""
        return self.before.start_pos or 0

    @cached_property
    def found(self) -> str:
        """The text at the error: a word, a string, a number, an operator or a character."""
        match = _FOUND.match(self.text, self.position)
        return match.group() if match else ""

    @cached_property
    def rest(self) -> str:
        """The first 80 characters of the text from the error on."""
        return self.text[self.position : self.position + 80]

    @property
    def ended(self) -> bool:
        """Whether the error is at the end of the file."""
        return self.position >= len(self.text)

    @property
    def word(self) -> bool:
        """Whether there is a word at the error."""
        return self.found[:1].isidentifier()

    @property
    def keyword(self) -> str:
        """The first word of the current statement."""
        return self.statement[0] if self.statement else ""

    @property
    def after_operand(self) -> bool:
        """Whether an operator of a guard could follow."""
        return "AND" in self.expects

    @property
    def in_body(self) -> bool:
        """Whether a step of a body could follow."""
        return "NOT" in self.expects

    @property
    def new_line(self) -> bool:
        """Whether a line ends between the last token and the error."""
        return "\n" in self.text[self.before_end : self.position]

    @property
    def open(self) -> Bracket | None:
        """The innermost open bracket of an expression or a body."""
        return self.brackets[-1] if self.brackets and not self.brackets[-1].block else None

    @property
    def before_end(self) -> int:
        """The position where the last token ends."""
        return self.before_start + len(self.before)

    def span(self, at: str) -> Span:
        """Return the span of a place: `found`, `before` or `behind`, as in `Rule.at`."""
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
    """A known mistake: the test whether it applies, and its message and hint.

    Message and hint may have placeholders, such as `{found}` (`_placeholders`).
    """

    when: Callable[[Situation], bool]
    message: str
    hint: str
    at: str = "found"
    """The place: the text `found` at the error, the token `before` it, or just `behind` that token.
    """
    code: str = "K001"


def _near_statement(s: Situation) -> str:
    word = s.before.lower()
    return _STATEMENTS_ELSEWHERE.get(word) or nearest(word, STATEMENTS, 0.7) or ""


def _near_top(s: Situation) -> str:
    return nearest(s.found, ("pattern", "event", "param"), 0.7) or ""


def _misses_semicolon(s: Situation) -> bool:
    return (
        "SEMICOLON" in s.expects
        and s.open is None
        and (s.ended or s.found == "}" or (s.word and s.new_line))
    )


def _touches(s: Situation, text: str) -> bool:
    """Return whether the last token is this text, directly before the error."""
    return s.before == text and s.before_end == s.position


def _names_count(s: Situation) -> bool:
    """Return whether a name is the first token in a brace that directly follows a step or group."""
    if s.open is None or s.statement[-2:-1] != ["{"] or s.before.type != "NAME":
        return False
    if s.statement[-3] in _BODY_WORDS:
        return False
    line = s.text.split("\n")[s.open.line - 1]
    return re.match(r"[A-Za-z0-9_)]", line[max(s.open.column - 2, 0) :]) is not None


RULES: tuple[Rule, ...] = (
    # --- characters ---
    Rule(
        lambda s: s.found == '"',
        "this string has no closing quote on its line",
        'write a quote inside a string as `\\"`, and a newline as `\\n`',
        code="K002",
    ),
    Rule(
        lambda s: s.rest.startswith("/*"),
        "this comment is not closed",
        "close it with `*/`",
        code="K002",
    ),
    Rule(
        lambda s: _touches(s, "/") and s.found == "*",
        "this comment is not closed",
        "close it with `*/`",
        at="before",
        code="K002",
    ),
    Rule(
        lambda s: s.found in ("'", "“", "”", "„", "\u2018", "\u2019", "`"),
        "a string must be in double quotes",
        'write "text"',
        code="K002",
    ),
    Rule(
        lambda s: s.found == "#" or (s.rest.startswith("--") and not s.statement),
        "a comment begins with `//`",
        "write `// …` or `/* … */`",
        code="K002",
    ),
    Rule(
        lambda s: s.rest.startswith("--") and "MINUS" in s.expects,
        "`--` is neither a comment nor an operator",
        "write a comment as `// …` or `/* … */`; separate two minus signs: `x - -1`",
        code="K002",
    ),
    Rule(
        lambda s: not s.found.isprintable() and s.found != "\n",
        "the character {code} is invisible or looks like a space",
        "replace it with a plain space or a newline, or remove it",
        code="K002",
    ),
    Rule(
        lambda s: s.found.isalpha() and not s.found.isascii(),
        "`{found}` is not allowed in a name",
        "names consist of A-Z a-z 0-9 _; write an attribute of another name as "
        'data["größe"], and a node of a topology as "größe"',
        code="K002",
    ),
    Rule(
        lambda s: s.found == "." and (s.rest[1:2].isdigit() or s.before.type == "NUMBER"),
        "a number must begin and end with a digit",
        "write `0.5` or `5.0`",
        code="K002",
    ),
    # --- files of another kind ---
    Rule(
        lambda s: _FILE_NAME.fullmatch(s.text.strip()) is not None,
        "this is the name of a file, not the text of a pattern",
        "pass the name to `ketal.load`, which reads the file",
    ),
    Rule(
        lambda s: s.found in ("{", "[") and not s.before,
        "a pattern file cannot begin with `{found}`",
        "if this is a log, pass the pattern before it: `ketal run PATTERN LOG`",
    ),
    # --- operators of guards ---
    Rule(
        lambda s: s.after_operand and s.before.type == "NAME" and s.before in _REPLACEMENTS,
        "`{before}` is not an operator",
        "write `{instead_of_before}`",
        at="before",
    ),
    Rule(
        lambda s: s.before.type == "NAME" and s.before in ("not", "NOT") and s.after_operand,
        "`{before}` is not a guard operator",
        NOT_HINT,
        at="before",
    ),
    Rule(
        lambda s: s.found in ("=", "==") and s.before == "==",
        "`===` is not an operator",
        "write `==`",
    ),
    Rule(
        lambda s: s.before in ("<", ">") and s.found in ("=", ">", "<", ">=", "=="),
        "`{before}{found}` is not an operator",
        "use `==`, `!=`, `<`, `<=`, `>` or `>=`",
    ),
    Rule(
        lambda s: s.after_operand and s.rest.startswith(("=>", "=<")),
        "`=>` and `=<` are not operators",
        "write `>=` or `<=`",
    ),
    Rule(
        lambda s: _touches(s, "-") and s.found == ">",
        "`->` is not a guard operator",
        _RELATIONS,
        at="before",
    ),
    Rule(
        lambda s: s.after_operand and s.found in ("→", "∥"),
        "`{found}` is not a guard operator",
        _RELATIONS,
    ),
    Rule(
        lambda s: s.after_operand and s.found in _REPLACEMENTS,
        "`{found}` is not an operator",
        "write `{instead}`",
    ),
    Rule(
        lambda s: s.found == "~" and "BANG" in s.expects,
        "`~` is not an operator",
        "write `!`",
    ),
    Rule(
        lambda s: s.after_operand and s.found == "=" and "COMPARE" in s.expects,
        "`=` is not a comparison operator",
        "write `==`",
    ),
    Rule(
        lambda s: (
            s.after_operand
            and s.found in ("==", "!=", "<", "<=", ">", ">=", "in", "matches", "=")
            and "COMPARE" not in s.expects
        ),
        "comparisons cannot be chained",
        "write `a < b && b < c`",
    ),
    Rule(
        lambda s: (
            s.after_operand
            and s.found
            in ("is", "equals", "eq", "like", "contains", "startswith", "between", "xor", "implies")
        ),
        "`{found}` is not an operator",
        "use `==`, `!=`, `<`, `<=`, `>`, `>=`, `in […]` or `matches /…/`",
    ),
    Rule(
        lambda s: s.after_operand and s.found == "not",
        "`not` is not a guard operator",
        "write `!(x in [1, 2])` or `!(x matches /…/)`",
    ),
    Rule(
        lambda s: s.before.type == "REGEX" and s.word and set(s.found) <= set("gimsux"),
        "a regular expression cannot be followed by flags",
        "write `/(?i)…/` to ignore case, `/(?s)…/` to let `.` match a newline",
    ),
    Rule(
        lambda s: s.found == "(" and s.after_operand and s.text[s.before_start - 1] == ".",
        "values have no methods",
        "compare it (`x == 1`, `x matches /…/`), or register a guard (`my_guard(x)`)",
    ),
    Rule(
        lambda s: s.expects == {"REGEX"},
        "expected a regular expression in slashes after `matches`",
        "write `matches /…/`, with `\\/` for a `/` in it; write an empty one as `/(?:)/`",
    ),
    Rule(
        lambda s: s.before == "in" and s.expects == {"LSQB"},
        "expected a list in brackets after `in`",
        "write `in [1, 2]`",
    ),
    Rule(
        lambda s: s.before == "[" and s.expects == {"STRING"} and not s.found.startswith('"'),
        "the elements of a list cannot be accessed",
        "have the program log the element as a separate attribute, or register a guard; brackets "
        'contain the name of an attribute: `data["a name"]`',
    ),
    # --- guards that are words ---
    Rule(
        lambda s: s.before in GUARD_WORDS and s.expects == {"LPAR"} and s.keyword != "at",
        "`{before}` is a guard and requires its argument in parentheses",
        "write `{before}(…)`, or `data.{before}` for an attribute of that name",
        at="before",
        code="K010",
    ),
    Rule(
        lambda s: s.found == "*" and s.statement[-2:] in (["Call", "("], ["CALL", "("]),
        "unknown guard `Call`",
        "did you mean `call`?",
        code="K011",
    ),
    Rule(
        lambda s: s.expects == {"GLOB"} and s.found == "(",
        "`call` requires the return type before `Type.method`",
        "write `call(* Type.method(..))`; `*` matches any type",
    ),
    Rule(
        lambda s: s.before.type == "GLOB" and s.expects == {"LPAR"} and s.found == ")",
        "`call` requires the argument types after `Type.method`",
        "write `call(* Type.method(..))`; `..` matches any arguments",
    ),
    Rule(
        lambda s: "GLOB" in s.expects and s.found.startswith('"'),
        "the type and method of a `call` must not be in quotes",
        "write `call(* Type.method(..))`",
    ),
    # --- names ---
    Rule(
        lambda s: s.found == "=" and s.statement in (["event"], ["param"]),
        "expected a name after `{before}`",
        "write `{before} Name = …;`",
    ),
    Rule(
        lambda s: s.found == "=" and s.before == s.keyword and s.before in STATEMENTS,
        "`{before}` is a keyword and cannot name a step",
        "choose another name",
        at="before",
        code="K010",
    ),
    # --- bodies ---
    Rule(
        lambda s: (
            s.in_body
            and s.found in (";", ")")
            and "SEMICOLON" not in s.expects
            and s.before in (*_BODY_WORDS, "(")
        ),
        "the body is empty",
        "name at least one step: `find next A B`",
    ),
    Rule(
        lambda s: s.before.type in _REPETITION and s.in_body and s.found in ("*", "+", "?"),
        "a repetition cannot be repeated",
        "use parentheses: `(A*)?`; there are no reluctant or possessive repetitions",
    ),
    Rule(
        lambda s: (
            s.before == "{"
            and s.in_body
            and s.found[:1].isdigit()
            and re.fullmatch(r"[*+?]|\{.+\}", "".join(s.statement[-2:-1])) is not None
        ),
        "a repetition cannot be repeated",
        "use parentheses: `(A{2}){3}`; nested counts multiply, up to the limit states_max",
    ),
    Rule(
        lambda s: (
            s.before == "{"
            and s.open is not None
            and s.in_body
            and (s.found[:1].isdigit() or s.found in (",", "-", "."))
        ),
        "a repetition count must be `{2}`, `{2,5}` or `{2,}`, with integers",
        "write `{0,5}` for at most five",
    ),
    Rule(
        lambda s: _names_count(s) and s.found in (",", "}"),
        "a repetition count must be `{2}`, `{2,5}` or `{2,}`, with whole numbers",
        "write the numbers in the body: a parameter cannot be a count",
        at="before",
    ),
    Rule(
        lambda s: s.found == "}" and s.open is not None and s.open.text == "{",
        "braces require two or more blocks, in any order: `{A & B}`",
        "write `(A)` for a group; add a `;` before a `}` that ends the pattern",
    ),
    Rule(
        lambda s: s.before in ("&", "|") and s.found == s.before and s.in_body,
        "`{before}{found}` is a guard operator, not allowed between steps",
        "write `{before}` between steps, and `{A & B}` for steps in any order",
    ),
    Rule(
        lambda s: s.before == "not" and "CALL" in s.expects and "BANG" not in s.expects,
        "expected an event name or a guard in parentheses after `not`",
        "write `A not N B` or `A not (N && x > 1) B`",
    ),
    Rule(
        lambda s: s.in_body and s.statement[-2:-1] == ["not"] and s.found in _GUARD_SIGNS,
        "the guard of a `not` requires parentheses",
        "write `A not (N && x > 1) B`",
        at="before",
    ),
    Rule(
        lambda s: s.in_body and s.found in ("&", "&&") and "VBAR" in s.expects,
        "`{found}` is not allowed between steps here",
        "write `{A & B}` for steps in any order; declare a guard as a step",
    ),
    Rule(
        lambda s: s.in_body and s.found == "," and s.before != "{",
        "steps are not separated by commas",
        "write `A B`",
    ),
    Rule(
        lambda s: s.in_body and s.found in ("->", ">"),
        "`{found}` is not allowed between steps",
        "write `A B` for A, then B; for happened-before, use `Causal(…)` in a step's guard",
    ),
    Rule(
        lambda s: s.in_body and s.found in ("→", "∥"),
        "`{found}` is not allowed between steps",
        "declare a step, `B = Causal(E, A);` or `B = Conc(E, A);`, and write `A B`",
    ),
    Rule(
        lambda s: s.in_body and s.found == "!",
        "`!` is not allowed in a body",
        "write `A not N B`: no N between A and B",
    ),
    Rule(
        lambda s: s.in_body and s.before in ("within", "limit") and s.found[:1].isdigit(),
        "expected `;` before `{before}`",
        "end the body with `;` before `{before}`",
        at="before",
    ),
    Rule(
        lambda s: s.in_body and s.statement[-2:-1] == ["return"] and s.found == "=",
        "expected `;` before `return`",
        "end the body with `;` before `return`",
        at="before",
    ),
    Rule(
        lambda s: s.in_body and s.found in _GUARD_SIGNS,
        "a body consists of steps; a guard is not allowed in it",
        "declare a step, `A = …;`, and use its name here",
    ),
    Rule(
        lambda s: s.found in ("*", "+", "?") and "VBAR" in s.expects and "STAR" not in s.expects,
        "the guard of a `not` cannot be repeated",
        "remove it: `A not N B` already excludes every N between A and B",
    ),
    # --- brackets ---
    Rule(
        lambda s: (
            s.open is not None
            and (s.ended or s.found in (";", "}", ")", "]"))
            and s.found != CLOSING[s.open.text]
        ),
        "the `{open}` at line {open_line}, column {open_column} is not closed",
        "",
    ),
    Rule(
        lambda s: (s.found in (")", "]") and s.open is None) or (s.found == "}" and not s.brackets),
        "unmatched `{found}`",
        "remove it",
    ),
    # --- statements ---
    Rule(
        lambda s: s.ended and "RBRACE" in s.expects,
        "the file ends inside pattern `{pattern}`",
        "close it with `}`",
    ),
    Rule(
        _misses_semicolon,
        "expected `;` after {what}",
        "",
        at="behind",
    ),
    Rule(
        lambda s: s.expects == {"EQUAL"} and s.statement == [s.before] and bool(_near_statement(s)),
        "unknown statement `{before}`",
        "did you mean `{near}`?",
        at="before",
    ),
    Rule(
        lambda s: s.expects == {"EQUAL"} and s.statement == [s.before] and s.found in (":", ":="),
        "expected `=` after the name of the step",
        "declare a step as `A = guard;`",
    ),
    Rule(
        lambda s: s.expects == {"EQUAL"} and s.statement == [s.before],
        "unknown statement `{before}`",
        "declare a step as `NAME = guard;`, or write a body after `check` or `find`",
        at="before",
    ),
    Rule(
        lambda s: "PATTERN" in s.expects and s.found in STATEMENTS | {"step"},
        "`{found}` is only allowed inside a pattern",
        "begin with `pattern Name {`; only `event` and `param` are allowed outside",
    ),
    Rule(
        lambda s: "PATTERN" in s.expects and bool(_near_top(s)),
        "unknown declaration `{found}`",
        "did you mean `{near_top}`?",
    ),
    Rule(
        lambda s: s.keyword == "return" and s.expects == {"EQUAL"},
        "every returned value requires a name",
        "write `return hash = First.hash`, or `return count` to count the matches",
    ),
    Rule(
        lambda s: s.before == "," and s.found in CLOSING.values(),
        "missing item after `,`",
        "remove the comma before `{found}`, or add an item",
    ),
    Rule(
        lambda s: s.found in (";", ",") and s.before in (",", "(", "["),
        "missing item after `{before}`",
        "",
    ),
    Rule(
        lambda s: s.found == ";" and not s.statement,
        "stray `;`",
        "remove it",
    ),
)


def diagnose(situation: Situation) -> Diagnostic:
    """Return the diagnostic for a text that does not parse."""
    rule = rule_for(situation)
    if rule is None:
        message = f"expected {_expected_text(situation)}, found {_found_text(situation)}"
        return Diagnostic(
            "K001",
            "error",
            message,
            situation.span("found"),
            _default_hint(situation),
            situation.pattern,
        )
    words = _placeholders(situation)
    return Diagnostic(
        rule.code,
        "error",
        _substitute(rule.message, words),
        situation.span(rule.at),
        _substitute(rule.hint, words) or _default_hint(situation),
        situation.pattern,
    )


_BODY_FORM = (
    "a body consists of steps: `A B`, `A | B`, `A*`, `A{2}`, `(A B)+`, `A not N B`, `{A & B}`"
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
"""Keyword → a hint with the form of its statement."""


def _default_hint(s: Situation) -> str:
    """Return a hint if no rule has one: the word that was probably meant, or a statement's form."""
    if "PATTERN" in s.expects:
        return "write `pattern NAME { … }`; only `event` and `param` are allowed outside"
    if "SEMICOLON" in s.expects and s.found in _FORMS:
        return f"is a `;` missing before `{s.found}`?"
    words = {word for name, word in s.words.items() if name in s.expects and word.isalpha()}
    meant = nearest(s.found, words, 0.7, any_case=True)
    if meant is not None and meant != s.found:
        return f"did you mean `{meant}`?"
    if s.open is not None and s.found in ("", ";", "}"):
        return f"is a `{CLOSING[s.open.text]}` missing?"
    if "SEMICOLON" in s.expects and (s.new_line or s.ended or s.found == "}"):
        return "end the statement with `;`"
    if "ARROW" in s.expects or "->" in s.statement:
        return (
            "write an edge as `q0 -> q1 on A;`, or in a topology as `p -> q;`, with a name of "
            'other characters than A-Z a-z 0-9 _ in quotes: `"db-1" -> q;`'
        )
    return _FORMS.get(s.keyword, "write `NAME = guard;`, or a statement such as `find next A B;`")


def rule_for(situation: Situation) -> Rule | None:
    """Return the first rule of the table that applies."""
    return next((rule for rule in RULES if rule.when(situation)), None)


def _placeholders(s: Situation) -> dict[str, str]:
    bracket = s.open or Bracket("", 0, 0, False)
    return {
        "found": s.found,
        "code": f"U+{ord(s.found[0]):04X}" if s.found else "",
        "before": s.before,
        "what": LABELS.get(s.keyword, "the edge" if "->" in s.statement else "the step"),
        "pattern": s.pattern,
        "open": bracket.text,
        "open_line": str(bracket.line),
        "open_column": str(bracket.column),
        "near": _near_statement(s),
        "near_top": _near_top(s),
        "instead": _REPLACEMENTS.get(s.found, ""),
        "instead_of_before": _REPLACEMENTS.get(s.before, ""),
    }


def _substitute(sentence: str, words: dict[str, str]) -> str:
    # Messages also have braces of the language, so only known placeholders are replaced.
    return re.sub(r"\{([a-z_]+)\}", lambda m: words.get(m.group(1), m.group()), sentence)


def _found_text(s: Situation) -> str:
    if s.ended:
        return "the end of the file"
    if s.found == "\n":
        return "the end of the line"
    return f"`{s.found}`" if s.found.isprintable() else f"the character U+{ord(s.found[0]):04X}"


def _expected_text(s: Situation) -> str:
    """Describe in words of the language what could follow."""
    guard = "a guard" if s.keyword not in LABELS or s.keyword == "event" else "a value"
    # Many tokens may follow a name; those that continue it are left out.
    after_name = {"IN", "MATCHES", "DOT", "LSQB", "LPAR", "NAME"}
    remaining = set(s.expects)
    parts: list[str] = []
    for present, group, words in (
        ({"SEMICOLON"}, {"SEMICOLON"}, f"`;` after {_placeholders(s)['what']}"),
        ({"EVENT", "ORDER"}, _STATEMENT, "a statement"),
        ({"NOT"}, _BODY, "a step"),
        ({"STAR", "QUESTION"}, _REPETITION, "a repetition"),
        ({"STRING", "BANG"}, _VALUE | _GUARD, guard),
        ({"STRING", "NUMBER"}, _VALUE | _GUARD, "a value"),
        ({"AND"}, _OPERATORS | after_name, "an operator"),
    ):
        if present <= remaining:
            parts.append(words)
            remaining -= group
    parts += sorted(
        {SORTS[name] if name in SORTS else f"`{s.words[name]}`" for name in remaining},
        key=lambda w: (len(w), w),
    )
    parts = parts[:4]
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " or " + parts[-1]
