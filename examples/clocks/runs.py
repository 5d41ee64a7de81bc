"""The runs of Baquero's "Causality is Graphically Simple", Figs. 2 to 10, with their stamps.

Figs. 2, 3, 4 and 10 are one run of three nodes under four schemes. In Figs. 5 to 7 three replicas
of an object update it, in Figs. 8 and 9 two clients write to a store of two servers.

The one rule: no stamp is written by hand; the runs are, and the schemes stamp them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from examples.clocks.areas import known_events
from ketal.clocks.causal_history import CausalHistories
from ketal.clocks.inexact.lamport import LamportClocks
from ketal.clocks.scheme import Clock, Happening, ReplicaScheme
from ketal.clocks.vector import VectorClocks
from ketal.clocks.versions.version_vectors import ObjectReplica, StoreReplica
from ketal.pictures.clocks.clock_figures import KnownEvents, history_text, vector_text
from ketal.pictures.clocks.stamped_space_time import TimelineEvent, stamped_space_time_svg

NODES = ("a", "b", "c")
NAMES = ("a1", "b1", "c1", "a2", "c2", "a3", "b2", "b3", "c3")
RECEIVED = {"b2": "a2", "c3": "b3"}
WORDS = {"a2": "Dinner?", "b3": "Yes, let's do it", "c2": "Bored ...", "c3": "Can I join?"}
HAPPENINGS = [
    Happening(node=name[0], receives=(NAMES.index(RECEIVED[name]),) if name in RECEIVED else ())
    for name in NAMES
]


def stamps_of(scheme: ReplicaScheme[Any]) -> dict[str, Any]:
    """Return the stamps of the run of Fig. 2, by the names of its events."""
    return dict(zip(NAMES, scheme.stamped(HAPPENINGS), strict=True))


VECTORS: dict[str, Clock] = {name: stamp.clock for name, stamp in stamps_of(VectorClocks()).items()}


def _run(title: str, stamps: Mapping[str, str], names: Mapping[str, str]) -> str:
    events = [TimelineEvent(name[0], stamps[name], names.get(name, name)) for name in NAMES]
    messages = [(NAMES.index(send), NAMES.index(name)) for name, send in RECEIVED.items()]
    return stamped_space_time_svg(title, NODES, events, messages)


def figure_2() -> str:
    """Draw Alice, Bob and Chris: happened-before."""
    stamps = {name: name for name in NAMES}
    return _run("Fig. 2: a run of three nodes", stamps, dict.fromkeys(NAMES, "") | WORDS)


def figure_3() -> str:
    """Draw the run with causal histories."""
    stamps = {name: history_text(one.dots) for name, one in stamps_of(CausalHistories()).items()}
    return _run("Fig. 3: causal histories", stamps, {})


def figure_4() -> str:
    """Draw the run with vector clocks."""
    stamps = {name: vector_text(clock, NODES) for name, clock in VECTORS.items()}
    return _run("Fig. 4: vector clocks", stamps, {})


def figure_10() -> str:
    """Draw the run with Lamport's clocks."""
    stamps = {name: str(one.entries[0]) for name, one in stamps_of(LamportClocks()).items()}
    return _run("Fig. 10: Lamport clocks", stamps, {})


# --- versions -------------------------------------------------------------------


def _replicas(text: Callable[[Clock], str], title: str, *, merge: bool) -> str:
    """Draw replicas of an object, of which b gets two versions; it merges them, or keeps both."""
    a, b, c = (ObjectReplica(name) for name in NODES)
    steps: list[tuple[ObjectReplica, str, str]] = []

    def step(replica: ObjectReplica, name: str, form: str = "open") -> ObjectReplica:
        steps.append((replica, name, form))
        return replica

    a = step(a.update(), "write", "event")
    b = step(b.update(), "write", "event")
    c = step(c, "")
    a = step(a, "send")
    c = step(c, "")
    b = b.receive(a)
    if merge:
        b = step(b.update() if b.in_conflict else b, "receive, merge", "event")
    else:
        b = step(b, "receive")
        b = step(b.update(), "merge", "event")
    received = len(steps) - (1 if merge else 2)
    a = step(a.update(), "write", "event")
    b = step(b, "send")
    c = step(c.receive(b), "receive")
    events = [
        TimelineEvent(one.name, ",".join(sorted(map(text, one.versions or [{}]))), name, form)
        for one, name, form in steps
    ]
    messages = [(3, received), (len(steps) - 2, len(steps) - 1)]
    return stamped_space_time_svg(title, NODES, events, messages)


def _as_history(vector: Clock) -> str:
    return history_text(KnownEvents.of(vector).above({}))


def figure_5() -> str:
    """Draw replicas with the causal histories of their versions."""
    return _replicas(_as_history, "Fig. 5: only writes count, causal histories", merge=True)


def figure_6() -> str:
    """Draw replicas with version vectors."""
    title = "Fig. 6: only writes count, version vectors"
    return _replicas(lambda vector: vector_text(vector, NODES), title, merge=True)


def figure_7() -> str:
    """Draw a replica that keeps two versions before it merges them."""
    return _replicas(_as_history, "Fig. 7: versions that are kept, causal histories", merge=False)


SERVERS = ("s", "t")


def store() -> dict[str, StoreReplica]:
    """Return what the servers of Figs. 8 and 9 keep, step by step."""
    empty = StoreReplica("s")
    first = empty.put("of B")
    t2 = StoreReplica("t").put("1")
    t2 = t2.put("2", t2.known)
    t3 = t2.put("3", t2.known)
    return {
        "s": empty, "s1": first, "s2": first.put("of A"),
        "t2": t2, "t3": t3, "t": t3.sync(first),
    }  # fmt: skip


def _store(title: str, *, dotted: bool) -> str:
    """Draw two clients that read and write at a server, and a second server."""
    steps = store()

    def versions(name: str) -> str:
        known = [known_events(version) for version in steps[name].siblings]
        if not dotted:
            return ",".join(history_text(one.above({})) for one in known) or "{}"
        return ",".join(one.text(SERVERS) for one in known) or vector_text({}, SERVERS)

    lines = {"A": "client A", "B": "client B", "s": "server S", "t": "server T"}
    events = [
        TimelineEvent(lines[node], versions(step), name, form)
        for node, step, name, form in (
            ("s", "s", "", "open"), ("A", "s", "get", "open"),
            ("s", "s", "", "open"), ("B", "s", "get", "open"),
            ("t", "t2", "", "open"), ("B", "s", "put", "open"), ("s", "s1", "s1", "ringed"),
            ("t", "t3", "t3", "ringed"), ("A", "s", "put", "open"), ("s", "s2", "s2", "ringed"),
            ("t", "t", "", "open"),
        )
    ]  # fmt: skip
    messages = [(0, 1), (2, 3), (5, 6), (8, 9), (6, 10)]
    return stamped_space_time_svg(title, tuple(lines.values()), events, messages)


def figure_8() -> str:
    """Draw a store with causal histories."""
    return _store("Fig. 8: a store, causal histories", dotted=False)


def figure_9() -> str:
    """Draw a store with dotted version vectors."""
    return _store("Fig. 9: a store, dotted version vectors", dotted=True)
