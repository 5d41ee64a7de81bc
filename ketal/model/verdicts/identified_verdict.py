"""The common part of all verdicts: fields, ids, JSON, a line of text.

Every verdict is frozen, has the fields of its JSON as attributes, `to_dict()` (that
JSON) and a one-line `str`. Its id is deterministic: hash(fingerprint, name of the
pattern, execution, scope, kind, (step, dot) pairs in match order), so that the verdicts of a
replay can be deduplicated; the name distinguishes two patterns of one file that are otherwise
equal. Ids are computed on demand: counting millions of matches computes none.

The one rule: equal verdicts have the same id, and it determines their hash.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ketal.model.events.dot import Dot
from ketal.model.events.event_time import rfc3339
from ketal.model.frozen_mapping import NO_SCOPE, FrozenMapping
from ketal.model.values import same
from ketal.model.verdicts.bound_steps import Steps, triples
from ketal.model.wording import scope_text

PlacesOf = Callable[[str, Iterable[Dot]], Sequence[str]]
"""(execution, dots) → the place of each event in the log; empty if it is not known."""

encode_json = msgspec.json.Encoder().encode


@functools.lru_cache(maxsize=1_024)
def _id_prefix_hash(fingerprint: str, pattern: str, execution: str) -> Any:
    """Return the hash of the common prefix of ids; copy it before use."""
    begins = encode_json((fingerprint, pattern, execution))[:-1] + b","
    return hashlib.blake2b(begins, digest_size=16)


class WrittenVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all verdicts: it can be written as JSON."""

    kind: ClassVar[str] = ""

    @property
    def verdict(self) -> str:
        """The kind of verdict.

        Examples
        --------
        >>> import ketal
        >>> ketal.Gap(pattern="", fingerprint="", dot=ketal.Dot("n1", 2)).verdict
        'gap'
        """
        return self.kind

    def to_dict(self, places_of: PlacesOf | None = None) -> dict[str, Any]:
        """Return the verdict as its JSON object."""
        raise NotImplementedError

    def written(self) -> tuple[str | None, bytes]:
        """Return the id, None for a rejected record, and the JSON of `to_dict()` as bytes.

        Examples
        --------
        >>> import ketal
        >>> lost = ketal.Gap(pattern="", fingerprint="", dot=ketal.Dot("n1", 2))
        >>> name, text = lost.written()
        >>> name == lost.id, text.endswith(b'"dot":"n1@2"}')
        (True, True)
        >>> ketal.Rejected(place="run.jsonl:3", reason="no JSON").written()
        (None, b'{"verdict":"rejected","place":"run.jsonl:3","reason":"no JSON"}')
        """
        as_json = self.to_dict()
        return as_json.get("id"), encode_json(as_json)


class IdentifiedVerdict(WrittenVerdict, frozen=True, kw_only=True, gc=False):
    """The base of the verdicts that have an id: all but `rejected`.

    Attributes
    ----------
    verdict : str
        The kind of verdict: `match`, `violation`, …; also called `kind`.
    pattern : str
        The pattern's name; empty for a verdict about the whole execution.
    id : str
        The deterministic id: 32 hex digits.
    fingerprint : str
        The fingerprint of the pattern.
    scope : FrozenMapping
        Partition keys and `node`, as an immutable mapping; empty if the pattern has no scopes.
    execution : str
        The execution's name if a log holds several, else empty.
    time : float or None
        The time of the completing event, in seconds since the epoch.
    certain : bool
        False if a missed event could change the verdict.
    depends_on : tuple of Dot
        The missed events that could change the verdict.
    """

    pattern: str
    fingerprint: str
    scope: FrozenMapping = NO_SCOPE
    execution: str = ""
    time: float | None = None
    certain: bool = True
    depends_on: tuple[Dot, ...] = ()

    def _steps(self) -> Steps:
        return ()

    @property
    def id(self) -> str:
        """The deterministic id: 32 hex digits.

        Examples
        --------
        >>> import ketal
        >>> one, other = (ketal.Gap(pattern="", fingerprint="", dot=ketal.Dot("n1", 2))
        ...               for _ in range(2))
        >>> len(one.id), one.id == other.id
        (32, True)
        """
        digest = _id_prefix_hash(self.fingerprint, self.pattern, self.execution).copy()
        steps = triples(self._steps())
        digest.update(self.scope.pairs() + b"," + encode_json((self.kind, steps))[1:])
        return digest.hexdigest()  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdentifiedVerdict) or self.__class__ is not other.__class__:
            return NotImplemented
        # Ids are compared too: the scopes {"x": 1} and {"x": 1.0} are equal, their ids are not.
        same_fields = same(msgspec.structs.astuple(self), msgspec.structs.astuple(other))
        return same_fields and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _body(self, places_of: PlacesOf | None) -> dict[str, Any]:
        return {}

    def _event_at(self, event: Dot, places_of: PlacesOf | None) -> dict[str, Any]:
        """Return the JSON fields of a verdict's only event, and its place if that is known."""
        out = {"event": str(event)}
        if places_of is not None and (place := places_of(self.execution, (event,))[0]):
            out["place"] = place
        return out

    def to_dict(self, places_of: PlacesOf | None = None) -> dict[str, Any]:
        """Return the verdict as its JSON object.

        Parameters
        ----------
        places_of : callable or None
            Given an execution's name and dots, returns the place of each event in the log; known
            places are added to the events of the verdict; to one that timed out with its `events`.

        Examples
        --------
        >>> import ketal
        >>> program = ketal.compile('pattern P { event E = type == "e"; find next E; }')
        >>> (match,) = ketal.run(program, [ketal.Event(node="n", type="e", clock={"n": 1}, time=0)])
        >>> as_json = match.to_dict()
        >>> as_json["verdict"], as_json["events"], as_json["bindings"], as_json["time"]
        ('match', ['n@1'], {'E': ['n@1']}, '1970-01-01T00:00:00Z')
        >>> match.to_dict(lambda execution, dots: [f"run.jsonl:{dot.counter}" for dot in dots])[
        ...     "places"
        ... ]
        ['run.jsonl:1']
        """
        out: dict[str, Any] = {"verdict": self.kind, "pattern": self.pattern, "id": self.id}
        if self.execution:
            out["execution"] = self.execution
        out["scope"] = self.scope.copy()
        out.update(self._body(places_of))
        if self.time is not None:
            out["time"] = rfc3339(self.time)
        if not self.certain:
            out["certain"] = False
            out["depends_on"] = [str(dot) for dot in self.depends_on]
        return out

    def _line(self, statement: str) -> str:
        """Return one line: the kind, the subject, and a statement."""
        where = scope_text(self.scope)
        execution = f"[{self.execution}]" if self.execution else ""
        subject = " ".join(filter(None, (execution, self.pattern, where and f"({where})")))
        return f"{self.kind} {subject}: {statement}" if subject else f"{self.kind} {statement}"
