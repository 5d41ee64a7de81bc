"""`ketal.view`: the space-time diagram of a log, as a page, a picture, or a file for other tools.

The one rule: every form shows the same events, messages and verdicts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from html import escape

import msgspec

from ketal.errors import SettingError, checked_text, write_errors, wrong_type
from ketal.explanation.judged_log import overflow_text
from ketal.explanation.views.forms import PAGE, form_for_path
from ketal.explanation.views.perfetto import trace_events
from ketal.explanation.views.space_time import (
    SpaceTime,
    ViewedLog,
    check_pictures,
    guard_texts,
    space_times,
    unmarked_text,
)
from ketal.explanation.views.space_time_svg import space_time_svg
from ketal.logs import Log
from ketal.logs.formats.shiviz import shiviz_text
from ketal.model.events.event import Event
from ketal.model.limits import DEFAULT, Limits
from ketal.model.wording import counted, undetermined
from ketal.pictures.page_html import page_html
from ketal.programs.program import Program, checked_program
from ketal.runtime.admission.execution_events import rejected_of
from ketal.runtime.admission.known_counters import impossible_text


def view(
    log: Log | Iterable[Event],
    program: Program | None = None,
    *,
    compare: Log | Iterable[Event] | None = None,
    title: str = "ketal",
    compare_title: str = "compared",
    limits: Limits | None = None,
) -> View:
    """Return the space-time diagram of a log, with the verdicts of a program beside it.

    The page has all executions of the log; any two can be shown side by side, with the events that
    only one of them has marked.

    Parameters
    ----------
    log : Log or iterable of Event
        The events.
    program : Program, optional
        The program whose verdicts are marked and explained.
    compare : Log or iterable of Event, optional
        Another run, which the page shows beside the first: one that passed beside one that
        failed, say. The other forms have the run as one more execution.
    title : str
        The heading.
    compare_title : str
        The name of the other run.
    limits : Limits, optional
        `viewed_events_max` and `viewed_verdicts_max` bound the events and the verdicts shown.

    Raises
    ------
    SettingError
        If the log cannot be read, or an execution has more events than are shown.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import ketal
    >>> log = [ketal.Event(node="a", type="send", clock={"a": 1}),
    ...        ketal.Event(node="b", type="receive", clock={"a": 1, "b": 1})]
    >>> shown = ketal.view(log, title="A message")
    >>> shown.html.splitlines()[0]
    '<!doctype html>'
    >>> shown.write("message.html")
    >>> shown.to_svg().count("<circle"), len(shown.to_shiviz().splitlines())
    (2, 4)
    """
    title = checked_text("title", title)
    compare_title = checked_text("compare_title", compare_title)
    base = DEFAULT if program is None else checked_program(program).compiled[0].limits
    given = Limits.given(limits, base)
    first = ViewedLog(log, given)
    other = None if compare is None else ViewedLog(compare, given)
    return view_logs(first, program, given, other, title=title, compare_title=compare_title)


def view_logs(
    log: ViewedLog,
    program: Program | None,
    limits: Limits,
    compare: ViewedLog | None,
    *,
    title: str,
    compare_title: str,
) -> View:
    """Return the diagram of a log that was read before; parameters are those of `view`."""
    drawn = space_times(log, program, limits)
    beside = -1
    if compare is not None:
        beside = len(drawn)
        compared = space_times(compare, program, limits)
        for runs, name in ((drawn, title), (compared, compare_title)):
            for one in runs:
                one.title = " ".join(filter(None, (name, one.name)))
        drawn += compared
    return View(drawn, title, program, beside)


class View:
    r"""A space-time diagram, as `ketal.view` returns it; a notebook displays it.

    Parameters
    ----------
    drawn : list of SpaceTime
        The executions.
    title : str
        The heading.
    program : Program or None
        The program whose verdicts are shown.
    beside : int
        The index of the execution that the page shows beside the first; -1 for none.

    Examples
    --------
    >>> import ketal
    >>> shown = ketal.view([ketal.Event(node="a", type="x", clock={"a": 1})])
    >>> shown
    <ketal.View of 1 event>
    >>> shown._repr_html_().startswith("<iframe")
    True
    >>> "traceEvents" in shown.to_perfetto(), shown.to_shiviz().splitlines()
    (True, ['x\t{}', 'a {"a": 1}'])
    >>> shown.to_svg().startswith("<svg")
    True
    >>> shown.write("run.html")
    """

    def __init__(
        self, drawn: list[SpaceTime], title: str, program: Program | None, beside: int
    ) -> None:
        self._drawn = drawn
        self._title = title
        self._program = program
        self._beside = beside

    def __repr__(self) -> str:
        return f"<ketal.View of {counted(self.events, 'event')}>"

    @property
    def events(self) -> int:
        """How many events are shown.

        Examples
        --------
        >>> import ketal
        >>> ketal.view([ketal.Event(node="a", type="x", clock={"a": 1})]).events
        1
        """
        return sum(len(one.events) for one in self._drawn)

    @property
    def rejected(self) -> tuple[int, str]:
        """How many records were rejected and so not shown, and the first of them, with its reason.

        Examples
        --------
        >>> import ketal
        >>> event = ketal.Event(node="a", type="x", clock={"a": 1})
        >>> other = ketal.Event(node="a", type="y", clock={"a": 2})
        >>> third = ketal.Event(node="a", type="z", clock={"a": 2})
        >>> number, reason = ketal.view([event, other, third]).rejected
        >>> number, reason.partition(";")[0]
        (1, 'a@2: a@2 was read before with other content')
        """
        return rejected_of(one.read for one in self._drawn)

    @property
    def html(self) -> str:
        """The page, as one self-contained file.

        Examples
        --------
        >>> import ketal
        >>> page = ketal.view([ketal.Event(node="a", type="x", clock={"a": 1})]).html
        >>> "<script" in page and "http" not in page
        True
        """
        data = {
            "judged": self._program is not None,
            "guards": {} if self._program is None else guard_texts(self._program),
            "checks": {} if self._program is None else check_pictures(self._program),
            "beside": self._beside,
            "executions": [one.to_dict() for one in self._drawn],
        }
        return page_html(self._title, data)

    def to_svg(self) -> str:
        """Return a picture of one execution.

        Raises
        ------
        SettingError
            If there are several executions, or more events than a picture draws.
        """
        if len(self._drawn) != 1:
            raise SettingError(
                f"a picture shows one execution, but there are {len(self._drawn):,}; "
                "use the page, which shows all of them (--to html)"
            )
        return space_time_svg(self._title, self._drawn[0])

    def to_perfetto(self) -> str:
        """Return the diagram in the trace-event format, as JSON, for Perfetto."""
        out = [x for n, one in enumerate(self._drawn, 1) for x in trace_events(n, one)]
        return msgspec.json.encode({"traceEvents": out, "displayTimeUnit": "ms"}).decode()

    def to_shiviz(self) -> str:
        """Return the diagram in ShiViz's format, in canonical order.

        Raises
        ------
        SettingError
            If a node's name holds white space, or a type a line end, or the clocks do not tell
            which events happened before which.
        """
        for one in self._drawn:
            if one.undecided:
                raise SettingError(
                    f"{undetermined(one.undecided)} happened-before, which a ShiViz log records; "
                    "use the page, which shows what may have happened before what (--to html)"
                )
        return shiviz_text((one.title, one.events) for one in self._drawn)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the diagram to a file, in the form that the suffix of the file's name selects.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced. The suffix `.svg` selects the picture, `.json`
            the form of Perfetto, `.log` that of ShiViz, any other the page.

        Raises
        ------
        SettingError
            If the file cannot be written, the picture would have too many events, a ShiViz log
            cannot represent the events, or the suffix is that of another picture format.
        TypeError
            If `path` is not a path.
        """
        if not isinstance(path, str | os.PathLike):
            raise wrong_type("path", "a path", path)
        text = view_text(self, form_for_path(os.fspath(path)))
        with (
            write_errors(os.fsdecode(path)),
            open(path, "w", encoding="utf-8", newline="\n") as file,
        ):
            file.write(text)

    def _repr_html_(self) -> str:
        inner = escape(self.html, quote=True)
        return f'<iframe srcdoc="{inner}" style="width:100%;height:600px;border:0"></iframe>'


def view_text(shown: View, form: str) -> str:
    """Return a view as text, in one of `FORMS`."""
    return shown.html if form == PAGE else str(getattr(shown, f"to_{form}")())


def doubts(shown: View) -> Iterator[str]:
    """Yield why arrows of a view may be wrong, and why verdicts are or may be missing."""
    if impossible := sum(one.impossible for one in shown._drawn):
        yield impossible_text(impossible)
    if reached := overflow_text([overflow for one in shown._drawn for overflow in one.overflows]):
        yield reached
    if unmarked := sum(one.unmarked for one in shown._drawn):
        yield unmarked_text(unmarked)
