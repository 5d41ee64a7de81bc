"""DataFrames made of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def data_frame(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """Return rows as a DataFrame backed by Arrow.

    A DataFrame of a list would run Python tasks again each time that it is read.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    of = StructType.fromDDL(schema)
    assert isinstance(of, StructType)
    arrow = to_arrow_schema(of)
    # Spark 4.0's types do not say that it takes a table of Arrow.
    make: Any = spark.createDataFrame
    columns = [[row[number] for row in rows] for number in range(len(arrow))]
    arrays = [
        pyarrow.array(column, kind) for column, kind in zip(columns, arrow.types, strict=True)
    ]
    made: DataFrame = make(pyarrow.Table.from_arrays(arrays, schema=arrow), of)
    return made
