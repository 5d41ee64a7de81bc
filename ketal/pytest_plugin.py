"""A pytest plugin: a test of a distributed program records its processes, and asserts patterns.

    def test_a_transfer(ketal_run):
        subprocess.run([sys.executable, "bank.py"], env=ketal_run.env, check=True)
        ketal_run.check("bank.ketal")

In the program, `Tracer("server")` without a sink writes to the folder that the test reads. A failed
check is explained as by `ketal explain`, and leaves the page of `ketal view` beside the logs.

The one rule: a test passes only if it recorded events of each pattern, and no pattern found
anything.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ketal.explanation.judged_log import JudgedLog
    from ketal.logs import Log
    from ketal.model.summaries import Summary
    from ketal.model.verdicts.verdict_kinds import Verdict
    from ketal.programs.program import Program
    from ketal.trace import Tracer
    from ketal.trace.activities import Kind

EXPLAINED_MAX = 3
"""How many verdicts a failure explains; of further ones it has the number, by pattern."""
NAME_BYTES_MAX = 120
"""The bytes at which the name of a page is cut, since the parameters of a test may be long."""


class KetalRun:
    """The recording of a test's processes; the value of the fixture `ketal_run`.

    Parameters
    ----------
    folder : path
        The folder of the logs.
    page : path
        The file for the page of a failure.
    """

    def __init__(self, folder: Path, page: Path) -> None:
        self.folder = folder
        self.page = page

    def __repr__(self) -> str:
        return f"<ketal_run in {self.folder}>"

    @property
    def env(self) -> dict[str, str]:
        """The environment for a process to record: `subprocess.run(…, env=ketal_run.env)`."""
        from ketal.trace.delivery.sinks import FOLDER_VARIABLE

        return {**os.environ, FOLDER_VARIABLE: str(self.folder)}

    def tracer(self, node: str, *, activity: Kind = "process") -> Tracer:
        """Return a tracer for a node that runs in the process of the test.

        Parameters
        ----------
        node, activity : str
            As for `ketal.trace.Tracer`.
        """
        from ketal.trace import Tracer
        from ketal.trace.delivery.sinks import log_of

        return Tracer(node, self.folder / log_of(node), activity=activity)

    def log(self) -> Log:
        """Return the log of the events that were recorded so far.

        Raises
        ------
        SettingError
            If there are none.
        """
        from ketal.errors import SettingError
        from ketal.logs import read_log

        paths = sorted(self.folder.glob("*.jsonl"))
        if not paths:
            raise SettingError(
                "no process recorded an event; use a Tracer in each process, and start processes "
                "with env=ketal_run.env"
            )
        return read_log(*paths)

    def check(
        self,
        pattern: str | os.PathLike[str] | Program,
        *,
        fail_on: str | Iterable[str] = ("violation", "match", "overflow", "rejected"),
        vacuous: bool = False,
        **params: Any,
    ) -> list[Verdict]:
        """Assert that patterns find nothing in the recorded events; return all other verdicts.

        A comparison that is probably a mistake, as of a number with a string, and events that were
        not recorded, are a warning; in a failure, lines of its message.

        Parameters
        ----------
        pattern : path or Program
            A pattern file, or a compiled program.
        fail_on : str or iterable of str
            The kinds of verdicts that fail the test; the default includes reached limits and
            rejected records.
        vacuous : bool
            Whether a pattern may pass that could not have found anything, because no event was
            recorded, none is in its alphabet, or none has a name that it needs, for example after
            a misspelling.
        **params
            Values for `param` declarations of the file.

        Raises
        ------
        SettingError
            If a kind of verdict does not exist, no event was recorded, the file cannot be read, or
            a parameter is wrong; a compiled program takes no parameters.
        AssertionError
            If a pattern found something, or the events cannot show that there is nothing to be
            found; the message has the reasons and the path of the page.
        """
        __tracebackhide__ = True  # pytest shows the test's line instead of this one
        from ketal.errors import KetalError

        try:
            judged, failures = self._judged(pattern, fail_on, params, vacuous=vacuous)
        except KetalError as error:
            raise error.with_traceback(None) from None
        doubts = _doubts(judged.summary)
        if failures:
            raise AssertionError("\n".join([*failures, *doubts, self._write_page(judged.program)]))
        for doubt in doubts:
            warnings.warn(doubt, stacklevel=2)
        return judged.verdicts

    def _judged(
        self,
        pattern: str | os.PathLike[str] | Program,
        fail_on: str | Iterable[str],
        params: dict[str, Any],
        *,
        vacuous: bool,
    ) -> tuple[JudgedLog, list[str]]:
        """Judge the recorded events; return also the lines that say why the test fails."""
        from ketal.errors import SettingError, checked_texts
        from ketal.explanation.judged_log import JudgedLog
        from ketal.model.verdicts.verdict_kinds import KINDS
        from ketal.programs.compiling import load
        from ketal.programs.program import Program

        kinds = {fail_on} if isinstance(fail_on, str) else set(checked_texts("fail_on", fail_on))
        if unknown := sorted(kinds.difference(KINDS)):
            raise SettingError(
                f"unknown kind of verdict {unknown[0]!r} in fail_on; choose from {', '.join(KINDS)}"
            )
        if params and isinstance(pattern, Program):
            raise SettingError(
                f"{', '.join(params)}: the parameters of a compiled program cannot be set; "
                "pass the pattern file, or set them when it is compiled"
            )
        program = pattern if isinstance(pattern, Program) else load(pattern, **params)
        judged = JudgedLog(program, self.log())
        failures = _finding_lines(judged, kinds)
        return judged, failures + _unjudged_lines(judged, vacuous=vacuous)

    def _write_page(self, program: Program) -> str:
        """Write the page of the recorded events; return the line that names it."""
        from ketal.errors import SettingError
        from ketal.explanation.views.viewing import view

        try:
            view(self.log(), program, title=self.page.stem).write(self.page)
        except SettingError as error:  # more than a page shows
            return f"the page of this run was not written: {error}"
        return f"the page of this run: {self.page}"


def _finding_lines(judged: JudgedLog, kinds: Collection[str]) -> list[str]:
    """Return the lines about the verdicts of some kinds, of which the first are explained."""
    from ketal.explanation.explaining import diagram, explanation_of
    from ketal.model.verdicts.find_verdicts import Match
    from ketal.model.wording import counted

    faults = [one for one in judged.verdicts if one.kind in kinds]
    lines = [f"{counted(len(faults), 'verdict')} in the recorded events:"] if faults else []
    explained, others = _by_pattern(faults)
    for fault in explained:
        explanation = explanation_of(judged, fault)
        lines += [str(fault)] if explanation is None else explanation.lines()
        if explanation is not None:
            lines += diagram(judged, explanation)
    if others:
        numbers = ", ".join(f"{name} {number:,}" for name, number in others.items())
        lines.append(f"and {others.total():,} more: {numbers}")
    listed = Counter(one.pattern for one in judged.verdicts if isinstance(one, Match))
    for name, counts in judged.summary["patterns"].items():
        # `return count` and `limit` make fewer verdicts than there are matches.
        more = counts["matches"] - listed[name]
        if more and "match" in kinds:
            lines.append(f"{name}: {counted(more, 'match', 'matches')} not listed")
    return lines


def _unjudged_lines(judged: JudgedLog, *, vacuous: bool) -> list[str]:
    """Return why the recorded events cannot show that there is nothing to be found."""
    from ketal.runtime.log_verdicts import failed_guards, impossible_clocks
    from ketal.runtime.silence.vacuity import obstacles

    summary = judged.summary
    lines = [*impossible_clocks(summary), *failed_guards(summary["patterns"])]
    if not vacuous:
        if not summary["events"]["accepted"]:
            lines.append("no event was recorded")
        for compiled in judged.program.compiled:
            entries = summary["patterns"][compiled.name].get("vacuous", ())
            lines += (
                f"{compiled.name} is vacuous: {one['message']}"
                for one in obstacles(compiled.kind, entries)
            )
    return lines


def _doubts(summary: Summary) -> list[str]:
    """Return what is probably a mistake of the pattern or of the recording."""
    from ketal.model.wording import counted
    from ketal.runtime.silence import unknown_comparisons

    doubts = [
        f"{name}: {doubt}"
        for name, counts in summary["patterns"].items()
        for doubt in unknown_comparisons.warnings(counts.get("unknown", ()))
    ]
    if holes := summary["holes"]:
        doubts.append(
            f"{counted(holes, 'hole')}: events that clocks know of and the log lacks; start "
            "each process with env=ketal_run.env"
        )
    return doubts


def _by_pattern(verdicts: list[Verdict]) -> tuple[list[Verdict], Counter[str]]:
    """Return the verdicts to explain, of as many patterns as possible; count the others by pattern.

    The kind of a verdict about no pattern, as of a rejected record, counts as its pattern.
    """
    from ketal.explanation.judged_log import by_turns

    def pattern(verdict: Verdict) -> str:
        return getattr(verdict, "pattern", "") or verdict.kind

    ranked = by_turns(verdicts, pattern)
    return ranked[:EXPLAINED_MAX], Counter(map(pattern, ranked[EXPLAINED_MAX:]))


def _file_name(parts: Iterable[str]) -> str:
    """Return the name of a file from some parts; different parts have different names."""
    parts = list(parts)
    safe = ("".join(one if one.isalnum() or one in "_." else "_" for one in part) for part in parts)
    name = "-".join(safe)
    shown = name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    if shown.split("-") == parts:
        return shown
    return f"{shown}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


@pytest.fixture
def ketal_run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KetalRun:
    """Return a `KetalRun` that records the processes of a test, and checks patterns on them."""
    from ketal.trace.delivery.sinks import FOLDER_VARIABLE

    folder = tmp_path / "ketal"
    folder.mkdir()
    pages_folder = request.config.getoption("--ketal-pages")
    page = tmp_path / f"{_file_name([request.node.name])}.html"
    if pages_folder is not None:
        Path(pages_folder).mkdir(parents=True, exist_ok=True)
        path, *names = request.node.nodeid.split("::")
        page = Path(pages_folder).absolute() / (
            _file_name([*Path(path).with_suffix("").parts, *names]) + ".html"
        )
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return KetalRun(folder, page)


def _folder_argument(text: str) -> str:
    """Return the path of a folder, for the option; raise an error if the path is not a folder."""
    if not text or (Path(text).exists() and not Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return text


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the folder of pages."""
    group = parser.getgroup("ketal")
    group.addoption(
        "--ketal-pages",
        metavar="FOLDER",
        default=None,
        type=_folder_argument,
        help="write the page of each failed check to this folder (default: the test's "
        "temporary folder)",
    )
