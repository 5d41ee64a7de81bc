"""Spark: one function, `detect`, from a DataFrame of events to a DataFrame of verdicts.

On a stream the program is a stateful operator (`applyInPandasWithState`) over a fixed number of key
groups. The state of a group is one binary value, which has the records of an `Execution`. On a
table the rows of each group are sorted and fed to an `Execution`, which is then concluded.

The one rule: the same events give the same verdicts with the same ids, from a stream or
from a table, however Spark cuts them into batches; `docs/spark.md` says for which patterns.
"""

from __future__ import annotations

import pickle
import warnings as python_warnings
from typing import TYPE_CHECKING

from ketal.errors import SettingError, wrong_type
from ketal.model.limits import Limits
from ketal.programs.program import Program, checked_program
from ketal.streaming.job.distribution import uses_time
from ketal.streaming.job.file import INT_MAX, KEY_GROUPS_MAX, NUMBER_MAX, Job
from ketal.streaming.spark import families as grouping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

    from ketal.logs.source import Source


def detect(
    program: Program,
    events: DataFrame,
    *,
    key_groups: int = Job.key_groups,
    source: Source | None = None,
    lateness_ms: int = Job.lateness_ms,
    partitions: int | None = None,
    limits: Limits | None = None,
    counts: Observation | str | None = None,
) -> DataFrame:
    """Run a program over the events of a DataFrame.

    Parameters
    ----------
    program : Program
        The patterns.
    events : DataFrame
        A stream or a table. It has either the columns of events, `node, type, clock` and optionally
        `time, data, id`, with other columns as attributes, and `topic, partition, offset` if the
        rows have an order; or the columns of Kafka's connector, where `value` is JSON.
    key_groups : int
        The number of groups that partitions are hashed to; it cannot change with a checkpoint.
    source : Source, optional
        Where the fields of events are in Kafka's messages, and the attribute that keys them.
    lateness_ms : int
        How far events of a stream may be behind the latest one. Not used if the column `time` has a
        watermark already.
    partitions : int, optional
        The number of (topic, partition) pairs of a stream: the execution ends when `ketal.end` was
        read in each.
    limits : Limits, optional
        Limits to use instead of those that the program was compiled with.
    counts : Observation or str, optional
        Where to report the counts of events read, rejected, late, not judged, …: for a table a
        `pyspark.sql.Observation`, for a stream the name of the metrics in each batch's progress
        (`observedMetrics`).

    Returns
    -------
    DataFrame
        The verdicts, with the columns `verdict, pattern, id, execution, scope, time, events,
        bindings, json`. `time` is a timestamp, `events` an array of dots, `bindings` a map from
        steps to such arrays; the others are text.

    Raises
    ------
    SettingError
        If columns are missing or have wrong types, a number is out of range, or the program cannot
        run in key groups; the message says what to choose instead.
    NotAvailableError
        If the program cannot run on a stream.
    TypeError
        If an argument has a wrong type.
    """
    from ketal.streaming.spark.output import observe_counts, verdict_rows

    checked_program(program)
    _check_integer("key_groups", key_groups, least=1, most=KEY_GROUPS_MAX)
    _check_integer("lateness_ms", lateness_ms, least=0, most=NUMBER_MAX)
    if partitions is not None:
        _check_integer("partitions", partitions, least=1, most=INT_MAX)
    if source is not None and source.undecided:
        program = program.for_undecided_clocks(source.undecided)
    for warning in grouping.warnings(program, key_groups):
        python_warnings.warn(warning, stacklevel=2)
    rows = group_rows(
        program,
        events,
        key_groups=key_groups,
        source=source,
        lateness_ms=lateness_ms,
        partitions=partitions,
        limits=limits,
        counts=counts is not None,
    )
    return verdict_rows(rows if counts is None else observe_counts(rows, program, counts))


def _check_integer(name: str, number: object, *, least: int, most: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise wrong_type(name, "an integer", number)
    if not least <= number <= most:
        raise SettingError(f"{name} must be from {least} to {most}, not {number}")


def group_rows(
    program: Program,
    events: DataFrame,
    *,
    key_groups: int,
    source: Source | None,
    lateness_ms: int,
    partitions: int | None,
    limits: Limits | None,
    figures: bool = False,
    counts: bool = False,
    verdict_bytes_max: int | None = None,
    rejection_bytes_max: int | None = None,
) -> DataFrame:
    """Return the rows that the key groups emit: verdicts, and rows of figures or of counts.

    The parameters are those of `detect`, and some fields of `Work`; `figures` and `counts` ask for
    these rows.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    from ketal.streaming.spark.group import Work
    from ketal.streaming.spark.operator import Operator
    from ketal.streaming.spark.rows.shaping import shape_rows

    if not isinstance(events, DataFrame):
        raise wrong_type("events", "a pyspark DataFrame", events)
    families = grouping.families(program, key_groups)
    streaming = events.isStreaming
    timed = uses_time(program)
    rows, shape = shape_rows(
        events,
        families,
        source=source,
        lateness_ms=lateness_ms if timed and streaming else None,
    )
    count = sum(family.groups for family in families)
    work = Work(
        families=families,
        placements=grouping.row_placements(families, shape.source),
        limits=grouping.group_limits(Limits.given(limits, program.compiled[0].limits), key_groups),
        shape=shape,
        partitions=partitions,
        timed=timed,
        figures=figures,
        counts=counts,
        verdict_bytes_max=verdict_bytes_max,
        rejection_bytes_max=rejection_bytes_max,
    )
    operator = Operator(_pickled_work(work))
    schema = ", ".join(f"{name} string" for name in work.output)
    if streaming:
        timeout = GroupStateTimeout.EventTimeTimeout if timed else GroupStateTimeout.NoTimeout
        return rows.groupBy("group").applyInPandasWithState(
            operator.process_stream, schema, "state binary", "append", timeout
        )
    tasks = min(count, int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))
    order = [name for name in ("group", "topic", "partition", "offset") if name in rows.columns]
    return (
        rows.repartition(tasks, F.col("group"))
        .sortWithinPartitions(*order)
        .mapInArrow(operator.process_table, schema)
    )


def _pickled_work(work: object) -> bytes:
    """Return the pickled work for the executors.

    A function of a module is pickled by name, so executors need the module; a function of the main
    script is pickled by value.
    """
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(work, pickle.HIGHEST_PROTOCOL))  # type: ignore[no-untyped-call]
    except Exception as fault:
        raise SettingError(
            f"the program cannot be sent to Spark's executors ({type(fault).__name__}: {fault}); a "
            "registered guard must be a function that does not contain what cannot be copied, for "
            "example an open file or a lock"
        ) from None


__all__ = ["detect"]
