"""The DataFrame that `detect` returns: the rows of key groups as verdicts, and their counts.

A group returns each verdict as JSON and as text columns. Columns of other types are decoded from
the JSON in the JVM, if a query selects them.

Counts are in separate rows (`Group.counts_row`), each with the difference to the group's previous
counts, so that their sum is the count over all groups. `DataFrame.observe` computes that sum while
a query runs, and the rows of counts are filtered out.

The one rule: a column beside the JSON has the value that the JSON has.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ketal.engine.scopes import Counts
from ketal.errors import wrong_type
from ketal.model.summaries import Tally
from ketal.programs.program import Program
from ketal.streaming.spark.group import COUNTED
from ketal.streaming.spark.rows.text import ANY_JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_DECODED = "time string, events array<string>, bindings map<string, array<string>>"

_COLLECTED = ("0001-01-03T00:00:00Z", "9999-12-29T00:00:00Z")
"""Python has a datetime for times between these in every time zone; `collect` fails for others."""


def verdict_rows(rows: DataFrame) -> DataFrame:
    """Return the verdicts of key groups with the columns that `detect` documents."""
    read = F.from_json("json", _DECODED, ANY_JSON)
    at = read["time"].try_cast("timestamp")
    first, last = (F.lit(one).cast("timestamp") for one in _COLLECTED)
    return rows.select(
        *("verdict", "pattern", "id", "execution", "scope"),
        F.when(at.between(first, last), at).alias("time"),
        read["events"].alias("events"),
        read["bindings"].alias("bindings"),
        "json",
    )


def observe_counts(rows: DataFrame, program: Program, counts: Observation | str) -> DataFrame:
    """Return the rows of verdicts only, with `counts` observing the sums of the rows of counts.

    Raises a TypeError if `counts` is neither an Observation nor a str.
    """
    # Spark Connect has an Observation of its own.
    if not isinstance(counts, str) and type(counts).__name__ != "Observation":
        raise wrong_type("counts", "a pyspark Observation, or a str for a stream", counts)
    is_counted = F.col("verdict") == COUNTED
    numbers = F.from_json(F.when(is_counted, F.col("json")), "map<string, bigint>")
    sums = [
        F.coalesce(F.sum(F.try_element_at(numbers, F.lit(name))), F.lit(0)).alias(name)
        for name in _count_names(program)
    ]
    return rows.observe(counts, *sums).where(~is_counted)


def _count_names(program: Program) -> list[str]:
    """Return the names of the counts in `Group.counts_row`."""
    of_pattern = [item.name for item in fields(Counts) if item.name != "listed"]
    of_patterns = [f"{pattern}.{name}" for pattern in program.names for name in of_pattern]
    return [*Tally().to_dict(), "gaps", "restarts", "doubtful", *of_patterns]
