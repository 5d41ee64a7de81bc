"""`Log`, a re-iterable log of events, and `read_log`, which returns one.

Every iteration reads the files or rows again, in bounded memory, and yields their records in
order. The one rule: malformed input never ends an iteration; it is yielded as a `Rejected` in its
place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from typing import Any, BinaryIO, NoReturn

from ketal.clocks.scheme import NO_CLOCKS
from ketal.errors import SettingError, wrong_type
from ketal.logs.clock_translation import UndecidedPairs, numbered, translated
from ketal.logs.formats import shiviz
from ketal.logs.formats.in_memory import RowOrigin, Rows
from ketal.logs.formats.log_files import file_batches
from ketal.logs.log_records import too_many_error
from ketal.logs.shape import Shape
from ketal.logs.source import MESSAGE, TRACES, VECTOR, MappedFields, Source
from ketal.logs.streams import STDIN, LogOrigin, share_read
from ketal.logs.traces.formats import read_traces
from ketal.logs.traces.message_pairing import Messages
from ketal.logs.traces.rebuilding import Rebuilding, add_receives, rebuilt
from ketal.model.events.control import Control
from ketal.model.events.dot import Dot, given_dot
from ketal.model.events.event import Event
from ketal.model.events.incarnation import numbered_dot
from ketal.model.limits import DEFAULT, Limits
from ketal.model.log_arguments import Record, RecordBatch, batched, batches_of, checked_log
from ketal.model.verdicts.execution_verdicts import Rejected
from ketal.model.wording import counted


class Log:
    """A re-iterable log of events.

    Iteration yields the events. A log may hold several executions; iteration then yields the events
    of all of them, and `executions` separates them. `log[dot]` is the event with that dot.

    Parameters
    ----------
    records : callable
        Returns a new iterator of all records: (execution, item, file, line), as the method
        `records` yields them.
    rebuilding : Rebuilding, optional
        Counts of the causes that were missing to rebuild the clocks; each iteration sets them.
    undecided : UndecidedPairs, optional
        Counts of the pairs of events that the clocks leave open; each iteration sets them.
    limits : Limits
        `events_max` bounds the events held for `log[dot]`.

    Attributes
    ----------
    rebuilding : Rebuilding or None
        The counts of the last complete iteration; None if clocks are not rebuilt.
    undecided : UndecidedPairs or None
        The counts of the last complete iteration; None if the clocks decide happened-before.

    Examples
    --------
    >>> import ketal
    >>> events = [ketal.Event(node="n1", type="push", clock={"n1": count}) for count in (1, 2)]
    >>> log = ketal.Log.of(events)
    >>> [str(event) for event in log], [str(event) for event in log]
    (['n1@1 push', 'n1@2 push'], ['n1@1 push', 'n1@2 push'])
    >>> log["n1@2"] is events[1], log.rejected, list(log.executions)
    (True, [], [''])
    """

    def __init__(
        self,
        records: Callable[[], Iterator[Record]],
        rebuilding: Rebuilding | None = None,
        *,
        undecided: UndecidedPairs | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        if not callable(records):
            raise wrong_type("records", "callable (use ketal.read_log for a file)", records)
        self._batches: Callable[[], Iterator[RecordBatch]]
        self._batches = lambda: batched(records(), together=False)
        self._limits = limits
        self._by_dot: dict[str, dict[Dot, Event]] | None = None
        self.rebuilding = rebuilding
        self.undecided = undecided
        self.share_read: Callable[[], float | None] = lambda: None
        self.mapped = MappedFields({})
        self._origin_text = ""

    @classmethod
    def of_batches(
        cls,
        batches: Callable[[], Iterator[RecordBatch]],
        *,
        undecided: UndecidedPairs | None = None,
        limits: Limits = DEFAULT,
    ) -> Log:
        """Return a log whose records are read in batches.

        Parameters
        ----------
        batches : callable
            Returns a new iterator of all `ketal.logs.RecordBatch`.
        undecided, limits
            As for the class.

        Examples
        --------
        >>> import ketal
        >>> from ketal.logs import RecordBatch
        >>> event = ketal.Event(node="n1", type="push", clock={"n1": 1})
        >>> log = ketal.Log.of_batches(lambda: iter([RecordBatch("", [event], "run.txt", [1])]))
        >>> [str(event) for event in log]
        ['n1@1 push']
        """
        log = cls(batches, undecided=undecided, limits=limits)  # type: ignore[arg-type]
        log._batches = batches
        return log

    @classmethod
    def of(cls, events: Iterable[Event | Control | Rejected]) -> Log:
        """Return a log of events that are in memory.

        Examples
        --------
        >>> import ketal
        >>> log = ketal.Log.of(ketal.Event(node="n1", type="push", clock={"n1": n}) for n in (1, 2))
        >>> len(list(log)), len(list(log))
        (2, 2)
        """
        items = list(checked_log(events, "events"))
        log = cls.of_batches(lambda: batches_of(items))
        log._origin_text = f" of {counted(len(items), 'record')}"
        return log

    def records(self) -> Iterator[Record]:
        """Yield (execution, item, file, line) in file order.

        An item is an Event, a Control or a Rejected; `ketal.logs.place` returns the place of a
        record as text.

        Examples
        --------
        >>> import ketal
        >>> from io import BytesIO
        >>> log = ketal.read_log(BytesIO(b'{"node": "n", "type": "a", "clock": {"n": 1}}'))
        >>> [(str(item), line) for execution, item, file, line in log.records()]
        [('n@1 a', 1)]
        """
        return chain.from_iterable(map(RecordBatch.records, self._batches()))

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the records in file order, in the batches in which they are read.

        Examples
        --------
        >>> import ketal
        >>> events = [ketal.Event(node="n", type="a", clock={"n": count}) for count in (1, 2)]
        >>> ketal.write_jsonl(events, "run.jsonl")
        2
        >>> [len(batch.items) for batch in ketal.read_log("run.jsonl").batches()]
        [2]
        """
        return self._batches()

    def __iter__(self) -> Iterator[Event]:
        for _, item, _, _ in self.records():
            if isinstance(item, Event):
                yield item

    def __repr__(self) -> str:
        return f"<ketal.Log{self._origin_text}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Log cannot be copied or pickled, because each iteration reads its files again; "
            "pickle list(log), or pass the paths"
        )

    def __getitem__(self, dot: Dot | str) -> Event:
        """Return the event with a dot, as verdicts name it: `log["n3@7"]`, `log[violation.event]`.

        The first look-up reads the whole log and holds its events. If several events have the dot,
        the first one is returned. In `A#2@1`, 2 is the incarnation of node A, the event's attribute
        `incarnation`.

        Raises
        ------
        KeyError
            If the log has no such event.
        SettingError
            If a text is not a dot, several executions have such an event, the log has more than
            `events_max` events, or it cannot be read.
        TypeError
            If `dot` is neither a dot nor a text.

        Examples
        --------
        >>> import ketal
        >>> event = ketal.Event(node="n1", type="push", clock={"n1": 1}, data={"value": 7})
        >>> log = ketal.Log.of([event])
        >>> program = ketal.compile('pattern Push { event P = type == "push"; find next P; }')
        >>> (match,) = ketal.run(program, log).matches
        >>> [log[dot].data["value"] for dot in match.events]
        [7]
        >>> log["n1@2"]
        Traceback (most recent call last):
        ...
        KeyError: 'the log has no event n1@2'
        """
        wanted = given_dot(dot)
        if self._by_dot is None:
            self._by_dot = self._index_by_dot()
        by_execution = {name: part[wanted] for name, part in self._by_dot.items() if wanted in part}
        if not by_execution:
            raise KeyError(f"the log has no event {wanted}")
        if len(by_execution) > 1:
            raise SettingError(
                f"the executions {', '.join(by_execution)} each have an event {wanted}; "
                "look it up in one of log.executions"
            )
        return next(iter(by_execution.values()))

    def __contains__(self, item: object) -> bool:
        """Return whether an event is in the log; an event or its dot, as in `log[dot]`."""
        if not isinstance(item, Dot | str):
            return any(event == item for event in self)
        try:
            self[item]
        except KeyError:
            return False
        return True

    def _index_by_dot(self) -> dict[str, dict[Dot, Event]]:
        """Read the log; return the events by execution and dot."""
        by_dot: dict[str, dict[Dot, Event]] = {}
        event_count = 0
        for execution, item, _, _ in self.records():
            if isinstance(item, Event):
                by_dot.setdefault(execution, {}).setdefault(numbered_dot(item), item)
                event_count += 1
            if event_count > self._limits.events_max:
                raise too_many_error("events", self._limits, "log[dot]")
        return by_dot

    @property
    def rejected(self) -> list[Rejected]:
        """The rejected records, in file order; reads the log.

        Examples
        --------
        >>> import ketal
        >>> from io import BytesIO
        >>> [str(rejected) for rejected in ketal.read_log(BytesIO(b"[]")).rejected]
        ["rejected <file>:1: the line is an array, not a JSON object (convert ... to ...
        """
        return [item for _, item, _, _ in self.records() if isinstance(item, Rejected)]

    @property
    def executions(self) -> dict[str, Log]:
        """The executions by name, in file order; reads the log.

        A log without names of executions has one, whose name is empty.

        Examples
        --------
        >>> import ketal
        >>> event = ketal.Event(node="n", type="a", clock={"n": 1})
        >>> log = ketal.Log(lambda: iter([("one", event, "", 0), ("two", event, "", 0)]))
        >>> {name: [str(event) for event in part] for name, part in log.executions.items()}
        {'one': ['n@1 a'], 'two': ['n@1 a']}
        """
        names = dict.fromkeys(batch.execution for batch in self._batches())
        return {name: self._execution_log(name) for name in names or ("",)}

    def _execution_log(self, name: str) -> Log:
        batches = self._batches
        return Log.of_batches(
            lambda: (batch for batch in batches() if batch.execution == name),
            undecided=self.undecided,
            limits=self._limits,
        )


def watched(
    log: Log | Iterable[Event], watch: Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]
) -> Log:
    """Return a log with the records of `log`, which passes its batches through `watch`."""
    records = checked_log(log)
    undecided = getattr(records, "undecided", None)
    return Log.of_batches(lambda: watch(batches_of(records)), undecided=undecided)


def read_log(
    *paths: str | os.PathLike[str] | BinaryIO | Rows,
    format: str | None = None,
    regex: str | None = None,
    delimiter: str | None = None,
    fields: Mapping[str, str] | None = None,
    nodes: Sequence[str] | None = None,
    time_unit: str = "s",
    time_format: str | None = None,
    rebuild: str | None = None,
    clock: str = VECTOR,
    limits: Limits = DEFAULT,
) -> Log:
    r"""Return the log in files or in rows in memory; they are read on iteration.

    Parameters
    ----------
    *paths : path, binary file, or rows
        All of them together are one execution. `-` is standard input, which can be read only once.
        Data compressed with gzip or Zstandard is decompressed; a file whose name ends in `.gz` or
        `.zst` must be compressed accordingly. Rows are an iterable of dicts, a DataFrame of pandas
        or polars, a table of pyarrow, or any other object with Arrow's stream protocol; a row is
        read like a JSON line with the same names. None, NaN and NaT are absent, a timestamp is a
        time (UTC if it has no zone), and the place of a rejected row is `row N`, from 1. An
        iterator can be read only once.
    format : str, optional
        `jsonl`, `shiviz`, `csv` or `parquet`; or `otlp`, `zipkin` or `jaeger` for traces, whose
        spans become events with rebuilt clocks. By default the format is detected, from the name
        and then from the first lines; a `regex` implies `shiviz`.
    regex, delimiter : str, optional
        For ShiViz logs. The delimiter separates executions, which are named by its group `trace`,
        else by its first named group, else by number. Parts with the same name in different files
        are one execution.
    fields : mapping of str to str, optional
        Field of the event → path in the record, as `{"clock": "pkt.vc"}`; keys are joined by `.`,
        and `\.` is a literal dot. The field `incarnation` becomes the attribute `incarnation`, the
        number of the node's run. The field `message` is the path of the id of a message in an
        event: of the events with the same id the first one in canonical order is its send, and
        those that it happened before are its receives.
    nodes : sequence of str, optional
        The nodes of positional clocks; a clock that names its nodes is rejected.
    time_unit : str
        The unit of times that are numbers: `s`, `ms`, `us` or `ns`.
    time_format : str, optional
        The `strptime` format of times that are text and not RFC 3339, as `%m/%d/%Y %I:%M:%S %p`;
        without `%z` they are UTC. Numbers stay numbers, unless the format itself writes a number,
        as `%Y%m%d%H%M%S` does.
    rebuild : str, optional
        How to pair sends and receives, as `id=msg.id,send=type:send,receive=type:recv`. Clocks are
        rebuilt from these pairs and from the order of each node's events in the log; existing
        clocks are ignored.
    clock : str
        The timestamping scheme of the clocks (docs/clocks.md). Stamps of other schemes than vector
        clocks, as `itc`, are translated to vector clocks once the whole log is read. If the scheme
        does not decide happened-before, as `lamport`, the attribute `undecided` of the log counts
        the pairs that it leaves open. `none` is for a log without clocks: an event is identified by
        its place among the events of its node, and only patterns under `order arrival` that do not
        ask for happened-before can be evaluated.
    limits : Limits
        `line_bytes_max`, `clock_entries_max`, `log_bytes_max` and the limits of regular
        expressions.

    Raises
    ------
    SettingError
        If a file is missing or an option is wrong; later, on iteration, if a file cannot be read,
        or a stream is read a second time.
    TypeError
        If an argument is neither a path nor a file nor rows, or a row is an event.

    Examples
    --------
    >>> import ketal
    >>> events = [ketal.Event(node="n1", type="Stack.push", clock={"n1": 1}),
    ...           ketal.Event(node="n2", type="Stack.pop", clock={"n2": 1})]
    >>> ketal.write_jsonl(events, "run.jsonl")
    2
    >>> log = ketal.read_log("run.jsonl")
    >>> [str(event) for event in log]
    ['n1@1 Stack.push', 'n2@1 Stack.pop']
    >>> from io import BytesIO
    >>> shiviz = BytesIO(b'alice {"alice":1} hello')
    >>> for event in ketal.read_log(shiviz, regex=r"(?<host>\S*) (?<clock>{.*}) (?<event>.*)"):
    ...     print(event)
    alice@1 hello
    >>> rows = [{"node": "n1", "type": "push", "clock": {"n1": 1}, "time": "5/27/2013"},
    ...         {"node": "n1", "type": "push", "time": "5/28/2013"}]
    >>> log = ketal.read_log(rows, time_format="%m/%d/%Y")
    >>> [(str(event), event.time) for event in log], log.rejected[0].place
    ([('n1@1 push', 1369612800.0)], 'row 2')
    """
    source = Source(
        format=format,
        regex=regex,
        delimiter=delimiter,
        fields={} if fields is None else fields,
        nodes=nodes,
        time_unit=time_unit,
        time_format=time_format,
        rebuild=rebuild,
        clock=clock,
    )
    return open_source(source, paths, limits)


def open_source(
    source: Source,
    paths: Iterable[str | os.PathLike[str] | BinaryIO | Rows],
    limits: Limits = DEFAULT,
) -> Log:
    """Return the log in `paths`, read as `source` describes; see `read_log`."""
    limits = Limits.given(limits)
    origins = _checked_origins(source, paths)
    files = [origin for origin in origins if isinstance(origin, LogOrigin)]
    mapped = MappedFields(source.fields)
    shape = Shape(source, limits=limits, mapped=mapped)
    if source.regex or source.delimiter or source.format == "shiviz":
        shiviz.check_expressions(source, limits)
    messages = None if source.rebuild is None else Messages.of(source.rebuild)

    def read_batches() -> Iterator[RecordBatch]:
        piece_numbers, row_numbers = count(1), count(1)
        for origin in origins:
            if isinstance(origin, RowOrigin):
                rows = origin.records(shape, row_numbers)
                yield from batched(rows, together=origin.is_stored)
            else:
                yield from file_batches(origin, source, shape, limits, piece_numbers)

    traces = source.format if source.format in TRACES else None
    missing = Rebuilding()
    scheme = source.scheme
    if scheme is not None and scheme.states_clocks:
        scheme = None
    pairs = UndecidedPairs(source.undecided) if source.undecided else None
    message_path = source.fields.get(MESSAGE)

    def batches() -> Iterator[RecordBatch]:
        mapped.reset()
        records: Iterator[Record] = chain.from_iterable(map(RecordBatch.records, read_batches()))
        if traces is not None:
            records = read_traces(files, traces, limits, missing)
        elif messages is not None:
            records = rebuilt(records, messages, limits, missing)
        elif scheme is not None:
            records = translated(records, scheme, limits, pairs)
        elif source.clock == NO_CLOCKS:
            return numbered(read_batches())
        elif message_path is None:
            return read_batches()
        if message_path is not None:
            records = add_receives(records, message_path, limits, mapped)
        return batched(records, together=True)

    log = Log.of_batches(batches, undecided=pairs, limits=limits)
    log.rebuilding = None if traces is None and messages is None else missing
    log.mapped = mapped
    if len(files) == len(origins):
        log.share_read = partial(share_read, files)
        log._origin_text = f" of {', '.join(file.name for file in files)}"
    return log


def _checked_origins(source: Source, paths: Iterable[Any]) -> list[LogOrigin | RowOrigin]:
    """Return the origins of a log; a SettingError if `source` cannot describe them."""
    origins = [RowOrigin(path) if RowOrigin.takes(path) else LogOrigin(path) for path in paths]
    names = [origin.name for origin in origins if isinstance(origin, LogOrigin)]
    if names.count(STDIN) > 1:
        raise SettingError("standard input is given twice as a log, but can be read only once")
    if not origins:
        raise SettingError("no log is given; name a file, or - for standard input")
    for name in ("format", "regex", "delimiter"):
        if len(names) < len(origins) and getattr(source, name) is not None:
            raise SettingError(f"{name} applies only to files, not to rows in memory")
    return origins
