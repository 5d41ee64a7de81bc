"""Fingerprints outlive the names of classes and fields (`ketal.compiler.fingerprints`).

`fingerprints.json` holds, for each pattern of the examples and of the corpus, its
fingerprint and a digest of its mark in a snapshot. Users and saved states
have these ids, so a change here is a new format, never a renaming.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import ketal
from ketal.compiler.automaton import Automaton, LiveRegisters, Variant
from ketal.compiler.fingerprints import FIELD_TAGS, NODE_TAGS, canonical_form
from ketal.compiler.predicates import Atom
from ketal.grammar import parse
from ketal.model import syntax
from ketal.model.syntax_walks import walk
from ketal.runtime.state.program_records import mark

ROOT = Path(__file__).resolve().parents[2]
PINNED = json.loads((Path(__file__).parent / "fingerprints.json").read_text())

# A pattern with every hashed class of nodes; it is only parsed, since no valid pattern has all.
EVERY_NODE = """
param limit_of = 3;
event Shared = true;
pattern Everything {
    order CausalOrder(frontier = 10 s);
    at host("db-*") all;
    partition by height, node;
    mode possibly;
    topology { p -> q; q -> r relaxed; }
    event A = call(* Stack.on(..)) && localhost && !(x in [1, 2.5]) || true;
    event B = exists(data.node) && name matches /a+/ && sane(y, -z) && type == "b";
    C = Causal(B, all) && size * 2 > limit_of;
    D = Conc(A) && hash != C.hash;
    find any (A | B) not Shared C {2,3} {C & D};
    within 100 events;
    return height = C.height, nodes = [C.node, D.node];
}
pattern Spelled {
    event A = false;
    check automaton { initial q0; final q0; q0 -> q0 on A; }
}
"""
EVERY_NODE_DIGEST = "08b32de8b170eaf955bb11b1d1d74c24"


def digest(value: Any) -> str:
    packed = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def hashed_nodes() -> list[syntax.Node]:
    """Return the nodes of the syntax that a fingerprint hashes: values, and all but the body."""
    file = parse(EVERY_NODE)
    nodes: list[syntax.Node | None] = []
    for pattern in file.patterns:
        nodes += [pattern.order, pattern.deployment, *pattern.partition]
        nodes += [pattern.topology, pattern.returns]
    nodes += [node for node in walk(file) if isinstance(node, syntax.Value)]
    return [node for node in nodes if node is not None]


def pattern_files() -> list[Path]:
    folders = (ROOT / "examples", ROOT / "tests" / "corpus")
    return sorted(path for folder in folders for path in folder.rglob("*.ketal"))


def computed() -> dict[str, list[str]]:
    return {
        f"{path.relative_to(ROOT).as_posix()}#{compiled.name}": [
            compiled.fingerprint,
            digest(mark(compiled)),
        ]
        for path in pattern_files()
        for compiled in ketal.load(path).compiled
    }


def test_fingerprints_of_examples_and_corpus_are_unchanged() -> None:
    assert computed() == PINNED


def test_every_hashed_class_has_a_unique_tag() -> None:
    classes = {type(part) for node in hashed_nodes() for part in walk(node)}
    assert set(NODE_TAGS) == classes | {Atom, Variant, LiveRegisters}
    assert len(set(NODE_TAGS.values())) == len(NODE_TAGS)


def test_every_field_of_an_automaton_except_state_names_has_a_tag() -> None:
    assert set(FIELD_TAGS) == {f.name for f in fields(Automaton)} - {"names"}


def test_canonical_form_of_every_class_of_nodes_is_unchanged() -> None:
    assert digest(canonical_form(hashed_nodes())) == EVERY_NODE_DIGEST


def test_shared_event_that_a_pattern_does_not_name_changes_no_fingerprint() -> None:
    ketal.register_guard("fingerprints_even", lambda n: n % 2 == 0, version="1")
    pattern = 'event A = type == "a"; pattern P { find any A; }'
    other = "event Even = fingerprints_even(size); pattern Q { find any Even; }"
    one, two = ketal.compile(pattern), ketal.compile(f"{pattern} {other}")["P"]
    assert one.fingerprint == two.fingerprint
