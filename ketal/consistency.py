"""What keeps a set of stamped events from being one vector-clocked execution.

In an execution each node counts 1, 2, 3, …, and an event's clock is the join of
the clocks of all that it knows, with its own entry added (Mattern, "Virtual time
and global states of distributed systems", 1989). So a log is one exactly if

1. every dot from 1 to the node's last is there once (`ketal.dots`),
2. every entry (m, v) of a clock names an event that is there
   (`ketal.references`), and
3. the clock of that event, and of the predecessor on the own node, is pointwise
   at most the own one: this is what "transitive" and "never backwards" mean
   (`ketal.contradictions`).

Each stage takes the reading with the fewest faults, and leaves the next one a
log in which its own question is settled.

The one rule: one cause, one finding. An entry that is blamed is unknown from
then on: it accuses no other event.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketal.contradictions import find_contradictions
from ketal.dots import give_dots
from ketal.execution import Execution, Stamped
from ketal.references import find_unknown_references


def examine(events: Iterable[Stamped], retired: Iterable[str] = ()) -> Execution:
    """Return the execution that events are, with what is wrong with it.

    Parameters
    ----------
    events : iterable of Stamped
        In file order.
    retired : iterable of str
        Nodes that left: an entry that is absent or too low for one is read as the
        last value known (DESIGN 5).
    """
    execution = Execution(events)
    give_dots(execution)
    find_unknown_references(execution)
    if left := frozenset(retired):
        _restore(execution, left)
    find_contradictions(execution)
    return execution


def _restore(execution: Execution, left: frozenset[str]) -> None:
    """Read the entries of nodes that left as the last value known there.

    A node that dropped an entry may get an older one back with any message, so an
    entry that is too low is raised as well.
    """
    for event in execution.in_causal_order():
        restored = dict(event.clock)
        for known in execution.knowns(event):
            for name in left & known.clock.keys():
                if known.clock[name] > restored.get(name, 0) and name != event.node:
                    restored[name] = known.clock[name]
        if restored != event.clock:
            event.clock = restored


def _is_placed(execution: Execution, event: Stamped) -> bool:
    """Return whether an event's dot is known for certain."""
    findings = (execution.found(code, event) for code in ("A001", "A002", "A003"))
    return event.counter > 0 and all(f is None or f.certain for f in findings)


def find_unknown_sends(execution: Execution, pairs: Iterable[tuple[Stamped, Stamped]]) -> None:
    """Report receives that do not know their send; `pairs` are (send, receive)."""
    for send, receive in pairs:
        if send.node == receive.node:
            knows = send.counter < receive.counter
        else:
            knows = receive.clock.get(send.node, 0) >= send.counter
        if knows or not (_is_placed(execution, send) and _is_placed(execution, receive)):
            continue
        found = [execution.found(code, receive) for code in ("A008", "A010")]
        about = [finding for finding in found if finding and send.node in finding.blamed]
        if send.node in receive.unknown and not about:
            # The entry is wrong in another way.
            continue
        # It explains what was found about the same entry.
        for finding in about:
            if finding.blamed == {send.node}:
                execution.withdraw(finding)
        receive.unknown |= {send.node}
        message = f"{receive.dot} receives what {send.dot} sent and does not know it"
        if send.node != receive.node:
            message += f": its entry of {send.node} is {receive.clock.get(send.node, 0)}"
        execution.report("A009", receive, message, dot=receive.dot, blamed={send.node})
