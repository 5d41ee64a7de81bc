"""`find any`: every occurrence of a pattern, by a search through the events that are kept.

Events are kept, not partial matches. A match is found when the last of its events is offered:
that event is put in each of its roles in turn, what comes before it in the word is looked for
backwards from there, then what comes after it forwards. Every relation to an event that is
already chosen is a range of a column, two bisections; so is a `not` whose guard is local.

There are two searches. In a *forward* one the event offered last is the last of the word: under
arrival order, and under CausalOrder where each step is after the one before it and events have
come in an order that respects that. Then each event knows the latest start of a match that
comes to it, and nothing is looked at that leads to no match. In the other any event may come
last; each event has two bounds instead, for what can come before it and after it, which events
that come later raise (`ketal.engine.find.bounds`). A scope whose events come out of order goes
from the first search to the other by offering what it keeps anew.

Cost, for n events kept, P nodes and k steps: a forward search takes O(P log n) for an event and
O(k P log n) for each match, flat in the window. The other takes O(P^2 log n) for an event; its
search can meet dead ends, as whether a match exists is NP-hard in k.

The one rule: each (step, event) sequence is found once, when the last of its events is offered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ketal.clocks import vector
from ketal.engine.configurations import Seen, SeenTable
from ketal.engine.find.bounds import pulled, push_after, push_before
from ketal.engine.find.breakers import Breakers
from ketal.engine.find.columns import NEVER, Column, Columns
from ketal.engine.find.expiring import Expiring
from ketal.engine.find.findings import Findings, Live, without_mirrors
from ketal.engine.find.roles import ALL_ANCHOR, PRIOR_ANCHOR, Role, Roles
from ketal.engine.find.store import RoleColumns, Store
from ketal.engine.find.windows import Firsts, Window
from ketal.model.limits import Limits

KEPT = "events kept for later ones"
NO_BOUNDS = (NEVER, NEVER)

Link = tuple[Role, Seen, Any]
"""The end of a word from one event on: its role, the event, and the rest (None at the end)."""
Word = tuple[tuple[Role, Seen], ...]
"""The events of a match, or of its beginning, each with its role."""


class AnyFind:
    """The events that one scope of a `find any` keeps, and the search through them.

    Parameters
    ----------
    roles : Roles
        The pattern's.
    limits : Limits
        `runs_max`, `candidates_max`, `matches_per_event_max`.
    live : Live
        How many events are kept, over all scopes of the pattern.
    traced : bool
        Whether the transitions of matches are asked for.
    """

    __slots__ = (
        "_by_place", "_expiring", "_known", "_last_key", "_passed", "_searched", "_store",
        "breakers", "firsts", "kept", "limits", "live", "roles", "traced", "window",
    )  # fmt: skip

    def __init__(self, roles: Roles, limits: Limits, live: Live, *, traced: bool) -> None:
        self.roles = roles
        self.limits = limits
        self.live = live
        self.traced = traced
        self.window = Window(roles.machine)
        self.kept = 0
        self.firsts = Firsts(self.window)
        self.breakers = Breakers(roles.machine) if roles.nots else None
        self._expiring: Expiring[tuple[Seen, tuple[Role, ...]]] = Expiring()
        self._passed = NEVER  # what counts from there or before is evicted
        arrival = roles.machine.arrival
        # The order that events must come in for a forward search: any, that of one class of
        # steps (the least of mirror images is then in the order offered), or happened-before.
        canonical = not arrival and roles.plain and roles.one_class
        self._last_key: tuple[int, str, int] | None = (0, "", 0) if canonical else None
        self._known: dict[str, int] | None = None
        if not (arrival or canonical) and roles.chained:
            self._known = {}
        self._searched = not (arrival or canonical or roles.chained)
        self._by_place = canonical or (arrival and not roles.related)
        self._store = self._new_store()

    def _new_store(self) -> Store:
        return Store(self.roles, by_place=self._by_place, searched=self._searched)

    def idle(self) -> bool:
        """Return whether nothing that was offered matters to what comes."""
        return not self.kept and not self.firsts.waiting

    # --- offering ---

    def offer(self, seen: Seen) -> Findings:
        """Take one event."""
        findings = Findings()
        if self.window.events is not None:
            last = seen.place - self.window.events
            self.firsts.expire_places(last, findings)
            self._evict(last)
        roles = self.roles.by_mask[seen.mask]
        if roles:
            if not (self._searched or self._in_order(seen)):
                self._search_in_any_order()
            words = list(self._found(seen, roles, findings))
            if self.window.bounded:
                self._wait(seen, roles)
            placed = self._placed(seen, roles)
            if placed:
                self._keep(seen, placed, findings)
            self._report(words, findings)
        if self.breakers is not None:
            self._bar(seen, self.breakers, findings)
        return findings

    def _in_order(self, seen: Seen) -> bool:
        """Return whether the event comes in the order that a forward search needs."""
        if self._last_key is not None:
            before, self._last_key = self._last_key, seen.key
            return before < seen.key
        known = self._known
        if known is None:
            return True
        if known.get(seen.node, 0) >= seen.counter:
            return False
        for node, counter in seen.clock.items():
            if counter > known.get(node, 0):
                known[node] = counter
        return True

    def _search_in_any_order(self) -> None:
        """Go over to a search in which any event of a match may come last."""
        self._searched, self._by_place = True, False
        seens = self._store.seens().values()
        self._store = self._new_store()
        self._expiring.clear()
        self.live.count -= self.kept
        self.kept = 0
        self._last_key = self._known = None
        self._keep_again(seens)

    def _keep_again(self, seens: Iterable[Seen]) -> None:
        """Keep events that were offered before, in their order."""
        for seen in seens:
            if not (self._searched or self._in_order(seen)):
                self._search_in_any_order()
            placed = self._placed(seen, self.roles.by_mask[seen.mask])
            self._keep(seen, placed, Findings())

    def _wait(self, seen: Seen, roles: Sequence[Role]) -> None:
        """Note an event that can be the first of a match, for the end of its window."""
        for role in roles:
            if role.starts and (role.exact or self._replays(((role, seen),))):
                self.firsts.add(seen, role.edge.step)
                return

    def _found(self, seen: Seen, roles: Sequence[Role], findings: Findings) -> Iterator[Word]:
        """Yield the matches that an event completes, mirror images included."""
        most = self.limits.matches_per_event_max
        at = self._at(seen)
        for role in roles:
            if self._searched:
                if not self._store.can_stand(role):
                    continue
                words = self._around(role, seen, at)
            elif role.ends:
                words = (_word(link) for link in self._back((role, seen, None), at, at))
            else:
                continue
            for word in words:
                if all(r.exact for r, _ in word) or self._replays(word):
                    if not most:
                        findings.overflow("matches_per_event_max", "matches of one event")
                        return
                    most -= 1
                    yield word

    def _at(self, seen: Seen) -> int:
        """Return the time or place that a window counts an event from."""
        if self.window.us is None:
            return seen.place
        assert seen.time_us is not None
        return seen.time_us

    def _report(self, words: list[Word], findings: Findings) -> None:
        """Put the matches that an event completed into `findings`, mirror images removed."""
        matches = [tuple([(role.edge.step, seen) for role, seen in word]) for word in words]
        self.firsts.matched(matches)
        if self.roles.machine.automaton.mirrors and len(matches) > 1:
            chosen = without_mirrors(matches, self.roles.classes)
            words = [words[n] for n in chosen]
            matches = [matches[n] for n in chosen]
        findings.matches += matches
        if self.traced:
            moves = ((r.edge.source, r.edge.step, r.edge.target, s) for w in words for r, s in w)
            findings.moves += dict.fromkeys(moves)

    # --- keeping ---

    def _placed(self, seen: Seen, roles: Sequence[Role]) -> list[tuple[Role, float]]:
        """Return the roles in which an event is of use later, each with its latest start."""
        if self._searched:
            return [(role, NEVER) for role in roles if not role.alone]
        if self._known is not None:
            return [(role, self._latest_start(role, seen)) for role in roles if not role.alone]
        placed = []
        for role in roles:
            if role.goes_on:
                start = self._latest_start(role, seen)
                if start > self._oldest(self._at(seen)):
                    placed.append((role, start))
        return placed

    def _oldest(self, newest: int) -> float:
        """Return the last time or place that a window with an event of `newest` is without."""
        if self.window.us is not None:
            return max(newest - self.window.us, self._passed)
        if self.window.events is not None:
            return newest - self.window.events
        return NEVER

    def _keep(self, seen: Seen, placed: list[tuple[Role, float]], findings: Findings) -> None:
        """Keep an event for later ones."""
        limit = self._limit()
        if limit is not None:
            findings.overflow(limit, KEPT)
            return
        self.kept += 1
        self.live.count += 1
        at = self._at(seen)
        if self._searched and self.roles.bounding:
            self._keep_bounded(seen, [role for role, _ in placed], at)
        else:
            for role, start in placed:
                self._store.columns(role).add(seen, start, NO_BOUNDS)
        if self.window.bounded:
            low: float = at
            if not (self._searched or self._known is not None):
                low = max(start for _, start in placed)
            self._expiring.add(low, (seen, tuple([role for role, _ in placed])))

    def _keep_bounded(self, seen: Seen, roles: Sequence[Role], at: int) -> None:
        """Put an event in its roles, with bounds, and raise those of others."""
        store = self._store
        bounds = [pulled(store, role, seen, at) for role in roles]
        for role, of in zip(roles, bounds, strict=True):
            store.columns(role).add(seen, NEVER, of)
        for role, (before, after) in zip(roles, bounds, strict=True):
            if before > NEVER:
                push_before(store, role, seen, seen, before)
            if after > NEVER:
                push_after(store, role, seen, seen, after)

    def _limit(self) -> str | None:
        """Return the limit that keeps one more event from being kept."""
        if self.live.count >= self.limits.runs_max:
            return "runs_max"
        others = 0 if self.breakers is None else len(self.breakers.by_place)
        return "candidates_max" if self.kept + others >= self.limits.candidates_max else None

    def _bar(self, seen: Seen, breakers: Breakers, findings: Findings) -> None:
        """Keep an event that can break a `not` of what is kept."""
        if not self.kept or not breakers.breaks(seen.mask):
            return
        if self._limit() is not None:
            findings.overflow("candidates_max", KEPT)
            return
        breakers.add(seen)
        if breakers.is_full():
            breakers.sweep(next(iter(self._store.seens()), None))

    def _evict(self, last: float) -> None:
        """Evict what counts from `last` or before."""
        self._passed = max(self._passed, last)
        for seen, roles in self._expiring.passed(last):
            self._store.evict(seen, roles)
            self.kept -= 1
            self.live.count -= 1
        if not self.kept and self.breakers is not None and self.breakers.by_place:
            self.breakers.sweep(None)

    # --- searching ---

    def _latest_start(self, role: Role, seen: Seen) -> float:
        """Return the latest start of a match that comes to an event in a role."""
        at = self._at(seen)
        if role.starts:
            return at
        best: float = NEVER
        link = (role, seen, None)
        for before in self._store.into.get(role.edge.source, ()):
            asked = self._asked(before.role, link)
            for node, column in self._lines(before, link):
                low, high = self._range(column, node, before.role, link, asked)
                best = max(best, column.latest_start(low, high))
        return min(best, at)

    def _around(self, role: Role, seen: Seen, at: int) -> Iterator[Word]:
        """Yield the matches in which an event stands in a role."""
        for link in self._back((role, seen, None), at, at):
            word = _word(link)
            if not role.goes_on:
                yield word
                continue
            join = vector.join([other.clock for _, other in word])
            ats = [self._at(other) for _, other in word]
            yield from self._ahead(word, join, min(ats), max(ats))

    def _back(self, link: Link, least: int, most: int) -> Iterator[Link]:
        """Yield the ways to put a beginning before the end of a word.

        `least` and `most` are the first and the last time or place of its events.
        """
        role = link[0]
        if role.starts:
            yield link
        oldest = self._oldest(most)
        for before in self._store.into.get(role.edge.source, ()):
            asked = self._asked(before.role, link)
            checks = self._checks(before.role, link)
            for node, column in self._lines(before, link):
                low, high = self._range(column, node, before.role, link, asked)
                if low >= high:
                    continue
                for x in self._worth(column, low, high, oldest):
                    at = self._at(x)
                    if self.window.bounded and (
                        at <= self._passed or max(most, at) - min(least, at) >= self.window.length
                    ):
                        continue
                    if not column.rising and not self._is_offered_before(x, link):
                        continue
                    if all(check(later.event, x.event) for check, later in checks):
                        yield from self._back((before.role, x, link), min(least, at), max(most, at))

    def _worth(self, column: Column, low: int, high: int, oldest: float) -> Iterable[Seen]:
        """Return the events of a range that a match, started after `oldest`, may come to."""
        if not self._searched:
            return column.started(low, high, oldest)
        if column.before is None:
            return column.seens[low:high]
        seens = column.seens
        return [seens[i] for i in column.before.above(low, high, oldest)]

    def _is_offered_before(self, x: Seen, link: Link) -> bool:
        """Return whether, under arrival order, an event comes before the end of a word."""
        if not self.roles.machine.arrival:
            return True
        role, seen, _ = link
        if x.place >= seen.place:
            return False
        if self.breakers is None or not role.nots:
            return True
        return x.place >= self.breakers.first_allowed(role.nots, seen, "")

    def _ahead(self, word: Word, join: Mapping[str, int], least: int, most: int) -> Iterator[Word]:
        """Yield the ways to complete the beginning of a word; `join` is what its events know."""
        last, seen = word[-1]
        if last.ends:
            yield word
        for after in self._store.out.get(last.edge.target, ()):
            role = after.role
            anchors = _anchors(role, word)
            checks = [(c.holds, x) for c in role.checks if (x := _last(word, c.step))]
            for node, column in self._lines_after(after, word):
                low = bisect_right(column.counters, join.get(node, 0), column.head)
                high = len(column.seens)
                for x, concurrent in anchors:
                    if concurrent:
                        low = bisect_right(column.counters, x.clock.get(node, 0), low)
                        high = column.not_after(x, node == x.node, low, high)
                    else:
                        low = max(low, column.first_after(x, node == x.node, low, high))
                if low < high and self.roles.are_mirrored(last, role):
                    low = bisect_right(column.seens, seen.key, low, high, key=_key)
                if low >= high:
                    continue
                for y in self._worth_after(column, low, high, least):
                    at = self._at(y)
                    if self.window.bounded and (
                        at <= self._passed or max(most, at) - min(least, at) >= self.window.length
                    ):
                        continue
                    if role.nots and self._is_barred(role, seen, y):
                        continue
                    if all(check(y.event, x.event) for check, x in checks):
                        yield from self._ahead(
                            (*word, (role, y)),
                            vector.join((join, y.clock)),
                            min(least, at),
                            max(most, at),
                        )

    def _worth_after(self, column: Column, low: int, high: int, least: int) -> Iterable[Seen]:
        """Return the events of a range from which a match, started at `least`, may end."""
        if column.after is None:
            return column.seens[low:high]
        newest = -least - self.window.length
        return [column.seens[i] for i in column.after.above(low, high, newest)]

    def _is_barred(self, role: Role, prior: Seen, seen: Seen) -> bool:
        assert self.breakers is not None
        return self.breakers.first_allowed(role.nots, seen, prior.node) > prior.counter

    # --- what is asked of an event before the end of a word ---

    def _asked(self, role: Role, link: Link) -> list[tuple[Seen, bool]]:
        """Return (event, concurrent) for each relation whose anchor is the event before.

        The event before has the given role. An anchor is the last event of its step, so one
        that is nearer hides those before it.
        """
        step = role.edge.step
        asked = [
            (link[1], r.concurrent) for r in link[0].relations if r.anchor < 0 or r.anchor == step
        ]
        if self.roles.prior_only:
            return asked
        hidden, rest = link[0].edge.step == step, link[2]
        while rest is not None:
            for r in rest[0].relations:
                if r.anchor == ALL_ANCHOR or (r.anchor == step and not hidden):
                    asked.append((rest[1], r.concurrent))
            hidden = hidden or rest[0].edge.step == step
            rest = rest[2]
        return asked

    def _checks(self, role: Role, link: Link) -> list[tuple[Any, Seen]]:
        """Return the comparisons with the event before, each with the event that it is of."""
        if self.roles.prior_only:
            return []
        step, rest, out = role.edge.step, link, []
        while rest is not None:
            out += [(c.holds, rest[1]) for c in rest[0].checks if c.step == step]
            if rest[0].edge.step == step:
                break
            rest = rest[2]
        return out

    def _lines(self, before: RoleColumns, link: Link) -> Iterable[tuple[str, Column]]:
        """Return the columns to look through for the event before; by an equality if there is."""
        columns: Columns = before.nodes
        if self.roles.equating:
            step, rest = before.role.edge.step, link
            while rest is not None:
                for equality in rest[0].equalities:
                    if equality.step == step:
                        value = self.roles.later_value(equality.atom, rest[1].event)
                        return before.having((False, equality.atom), value).items()
                if rest[0].edge.step == step:
                    break
                rest = rest[2]
        return columns.items()

    def _lines_after(self, after: RoleColumns, word: Word) -> Iterable[tuple[str, Column]]:
        for equality in after.role.equalities:
            anchor = _last(word, equality.step)
            if anchor is not None:
                value = self.roles.anchor_value(equality.atom, equality.step, anchor.event)
                return after.having((True, equality.atom), value).items()
        return after.nodes.items()

    def _range(
        self, column: Column, node: str, of_role: Role, link: Link, asked: list[tuple[Seen, bool]]
    ) -> tuple[int, int]:
        """Return the range of a role's column that can stand just before the end of a word."""
        low, high = column.head, len(column.seens)
        role, seen, rest = link
        if self.roles.machine.arrival or self._by_place:
            if column.rising:
                if column.places[-1] >= seen.place:
                    high = bisect_left(column.places, seen.place, low, high)
                if self.breakers is not None and role.nots:
                    allowed = self.breakers.first_allowed(role.nots, seen, "")
                    low = bisect_left(column.places, allowed, low, high)
        else:
            if self.breakers is not None and role.nots:
                allowed = self.breakers.first_allowed(role.nots, seen, node)
                low = bisect_left(column.counters, allowed, low, high)
            if self._searched:
                high = column.not_after(seen, node == seen.node, low, high)
                while rest is not None and low < high:
                    high = column.not_after(rest[1], node == rest[1].node, low, high)
                    rest = rest[2]
                if low < high and self.roles.are_mirrored(of_role, role):
                    high = bisect_left(column.seens, seen.key, low, high, key=_key)
        for of, concurrent in asked:
            if low >= high:
                break
            known = of.counter - 1 if node == of.node else of.clock.get(node, 0)
            if not concurrent:
                if column.counters[high - 1] > known:
                    high = bisect_right(column.counters, known, low, high)
            elif node == of.node:
                return low, low
            else:
                low = bisect_right(column.counters, known, low, high)
                high = column.not_after(of, False, low, high)
        return low, high

    # --- what the relations do not say ---

    def _replays(self, word: Word) -> bool:
        """Return whether the automaton takes the events of a word, each in its role."""
        machine = self.roles.machine
        configuration, prior = machine.start(), None
        for role, seen in word:
            if prior is not None and self.breakers is not None:
                if machine.pending[configuration.state]:
                    flags = self.breakers.broken(configuration, prior, seen)
                    configuration = configuration._replace(broken=flags)
            plan = machine.plan(configuration.state, seen.mask)
            sub = None if plan is None else plan.under(seen, prior)
            if sub is None:
                return False
            targets = machine.decide(sub, configuration, seen)
            if (role.edge.step, role.edge.target) not in targets:
                return False
            configuration = machine.take(configuration, role.edge.step, role.edge.target, seen)
            prior = seen
        return True

    # --- windows ---

    def advance(self, watermark_us: int, findings: Findings) -> None:
        """End the time windows that a watermark has passed, in event-time order."""
        if self.window.us is not None:
            last = watermark_us - self.window.us
            self.firsts.expire_times(last, findings)
            self._evict(last)

    def end(self, findings: Findings) -> None:
        """End every window: nothing comes any more."""
        if self.window.bounded:
            self.firsts.end(findings)

    def earliest_us(self) -> int | None:
        """Return the first time that a watermark can end something of; None for nothing."""
        if self.window.us is None:
            return None
        times = (self.firsts.earliest(), self._expiring.earliest())
        return min((int(time) for time in times if time is not None), default=None)

    # --- state ---

    def events(self) -> Iterator[Seen]:
        """Yield the events that a match to come may have."""
        yield from self._store.seens().values()
        yield from (seen for _, seen in self.firsts.waiting.values())

    def entries(self) -> Iterator[tuple[int, Seen]]:
        """Yield each event that is kept with the number of an edge it can stand on."""
        yield from self._store.entries()
        if self.breakers is not None:
            yield from ((-1, seen) for seen in self.breakers.by_place.values())

    def save(self, seens: SeenTable) -> Any:
        """Return the run as plain data; `seens` numbers its events."""
        breakers = () if self.breakers is None else self.breakers.by_place.values()
        return {
            "kept": [seens.number(seen) for seen in self._store.seens().values()],
            "breakers": [seens.number(seen) for seen in breakers],
            "firsts": self.firsts.save(seens),
        }

    def load(self, value: dict[str, Any], seens: SeenTable) -> None:
        """Put what `save` gave into a fresh run: what is kept is offered anew."""
        if self.breakers is not None:
            for number in value["breakers"]:
                self.breakers.add(seens[number])
        self._keep_again([seens[number] for number in value["kept"]])
        self.firsts.load(value["firsts"], seens)

    def validate_state(self) -> None:
        """Assert that the counts are right, and the rules of what is kept."""
        self._store.validate_state()
        kept = self._store.seens()
        assert self.kept == len(kept)
        if self.breakers is not None:
            self.breakers.validate_state()
        for place, (_, seen) in self.firsts.waiting.items():
            assert place == seen.place


def _key(seen: Seen) -> tuple[int, str, int]:
    return seen.key


# --- words ---


def _word(link: Link | None) -> Word:
    out = []
    while link is not None:
        out.append((link[0], link[1]))
        link = link[2]
    return tuple(out)


def _last(word: Word, step: int) -> Seen | None:
    """Return the last event of a step."""
    return next((seen for role, seen in reversed(word) if role.edge.step == step), None)


def _anchors(role: Role, word: Word) -> list[tuple[Seen, bool]]:
    """Return (event, concurrent) for each relation of the event that comes after a word."""
    out = []
    for r in role.relations:
        if r.anchor == PRIOR_ANCHOR:
            out.append((word[-1][1], r.concurrent))
        elif r.anchor == ALL_ANCHOR:
            out += [(seen, r.concurrent) for _, seen in word]
        elif (seen := _last(word, r.anchor)) is not None:
            out.append((seen, r.concurrent))
    return out
