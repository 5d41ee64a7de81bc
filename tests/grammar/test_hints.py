"""Following a hint removes the error, or gives a better one."""

from __future__ import annotations

import difflib
import random
import string
from collections.abc import Collection

import pytest

import ketal
from ketal.errors import NEIGHBOURS_MAX

HEAD = 'pattern P { order CausalOrder; event E = type == "e"; event F = type == "f"; '


def hints_by_code(text: str) -> dict[str, str]:
    """Return the hint of each finding, by its code."""
    return {diagnostic.code: diagnostic.hint for diagnostic in ketal.lint(text)}


def errors(text: str) -> list[str]:
    return [diagnostic.code for diagnostic in ketal.lint(text) if diagnostic.severity == "error"]


@pytest.mark.parametrize(
    ("code", "text", "hint", "replaced"),
    [
        ("K101", "A = E; find any A not A F; }", "not E", ("not A", "not E")),
        ("K101", "A = E && x == 1; find any F not A F; }", "in parentheses", ("not A", "not (E)")),
        ("K101", "A = E; B = Causal(A); find any A B; }", "Causal(E, A)", ("l(A)", "l(E, A)")),
        ("K101", "B = Conc(B); find any E B; }", "Conc(", ("Conc(B)", "Conc(F)")),
        ("K101", "A = E; B = A && x == 1; find any A B; }", "write `E`", ("= A &&", "= E &&")),
        ("K102", "A = E; B = F && x == Aa.x; find any A B; }", "`A.x`", ("Aa.x", "A.x")),
        ("K102", "A = E; B = Causal(F, Aa); find any A B; }", "`A`", ("Aa", "A")),
        ("K001", "find any E within 5 s; }", "`;`", ("E within", "E; within")),
        ("K102", "find any E return count; }", "`;`", ("E return", "E; return")),
        ("K110", "event G = Causal(E); find any F G; }", "AfterG = Causal(G);",
         ("G = Causal(E);", "G = E; AfterG = Causal(G);")),
        ("K110", "event G = x == 1; AfterG = E; event H = Causal(G, AfterG); find any AfterG H; }",
         "AfterH = Causal(H);", ("H = Causal(G, AfterG);", "H = G; AfterH = Causal(H);")),
        ("K124", "find E F; }", "find any", ("find", "find any")),
        ("K126", "find any E? F; return x = x; }", "F.x", ("= x;", "= F.x;")),
        ("K012", "A = E; find any A; return x = A; }", "`Step.data.A`", ("= A;", "= A.data.A;")),
        ("K014", "find any E; return x = null; }", "`Step.data.null`", ("null", "E.data.null")),
        ("K102", "find any E; return x = Aa.y; }", "`Step.data.Aa.y`", ("Aa.y", "E.data.Aa.y")),
        ("K127", "find any E; limit 0; }", "return count;", ("limit 0;", "return count;")),
        ("K133", "find any E; limit 1; return count; }", "remove one", ("limit 1;", "")),
        ("K141", "find any F*; }", "F+", ("F*", "F+")),
        ("K143", "find any E not E not F F; }", "not (E || F)",
         ("not E not F", "not (E || F)")),
        ("K150", "check automaton { s -> t on E; } }", "initial s;", ("{ s", "{ initial s; s")),
        ("K150", "check automaton { initial q; s -> t on E; } }", "q -> s on E;",
         ("initial q;", "initial q; q -> s on E;")),
        ("K151", "find any automaton { initial s; s -> t on E; } }", "final t;",
         ("initial s;", "initial s; final t;")),
        ("K203", 'A = E && !(x in [1, "a"]); find any A; }', '!(x in [1]) || !(x in ["a"])',
         ('!(x in [1, "a"])', '(!(x in [1]) || !(x in ["a"]))')),
        ("K203", "After = F && Causal(E); find any E After; }", "write `Causal(F, E)`",
         ("F && Causal(E)", "Causal(F, E)")),
        ("K203", "event X = exists(x); After = X && F && Causal(E); find any E After; }",
         "write `Causal(F, E)`", ("F && Causal(E)", "Causal(F, E)")),
        ("K013", "partition by E.key; find any E F; }", "write `key`", ("E.key", "key")),
        ("K206", "at every node; partition by node; find any E; }", "remove the key `node`",
         ("partition by node;", "")),
    ],
)  # fmt: skip
def test_following_a_hint_removes_the_error(
    code: str, text: str, hint: str, replaced: tuple[str, str]
) -> None:
    text = HEAD + text
    assert code in errors(text)
    assert hint in hints_by_code(text)[code]
    old, new = replaced
    # The last occurrence: the name occurs in declarations too.
    at = text.rindex(old)
    mended = text[:at] + new + text[at + len(old) :]
    assert errors(mended) == []


def test_misspelt_name_is_compared_with_few_of_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with thousands of misspelt names would take minutes otherwise."""
    rng = random.Random(1)
    names = ["Step" + "".join(rng.choices(string.ascii_lowercase, k=8)) for _ in range(200)]
    compared: list[int] = []
    compare = difflib.get_close_matches

    def counting(name: str, known: Collection[str], most: int, cutoff: float) -> list[str]:
        compared.append(len(known))
        return compare(name, known, most, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    misspelt = [
        *(f"{name[:5]}{name[6]}{name[5]}{name[7:]}" for name in names[:70]),
        *(name[1:] for name in names[70:140]),
        *(f"{name}x" for name in names[140:]),
    ]
    steps = "".join(f"{name} = x == 1; " for name in names)
    text = f"pattern P {{ {steps} check {' '.join(misspelt)}; }}"
    found = {d.message: d.hint for d in ketal.lint(text) if d.code == "K102"}
    for name, other in zip(names, misspelt, strict=True):
        if other not in names:
            assert found[f"unknown step `{other}`"] == f"did you mean `{name}`?"
    assert max(compared) <= 4 * NEIGHBOURS_MAX
