"""DataFrames with the columns of Kafka's connector, and the operator's columns made from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ketal.errors import SettingError
from ketal.logs.source import KAFKA, Path, Source
from ketal.logs.times import TIME_UNITS
from ketal.model.events.control import CONTROL_PREFIX
from ketal.streaming.job.messages import MessageMetadata, message_paths
from ketal.streaming.spark.families import Family, PartitionKey, attribute_paths, keying_attribute
from ketal.streaming.spark.rows.keyed import SAMPLED_EACH, SAMPLED_FIRST, SEPARATOR
from ketal.streaming.spark.rows.text import (
    canonical_text,
    texts_at,
    timestamp_by_format,
    timestamp_of,
)
from ketal.streaming.spark.rows.types import KAFKA_TYPES, check_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLACE = ("topic", "partition", "offset")


class MessageColumns:
    """The columns of Kafka's connector: key, value, topic, partition, offset and so on."""

    def __init__(self, events: DataFrame, source: Source, families: Sequence[Family]) -> None:
        check_types({one.name: one.dataType for one in events.schema.fields}, KAFKA_TYPES)
        self.source = source
        paths = message_paths(source)
        self._paths = paths
        self._text = F.col("value").cast("string")
        read = [paths["type"], paths["time"]]
        read += (
            one
            for f in families
            for attribute in f.partition
            for one in attribute_paths(attribute, paths)
        )
        self._texts = texts_at(self._text, (path for path in read if path[0] != KAFKA))
        self._needed = MessageMetadata(paths)
        if self._needed.timestamp and "timestamp" not in events.columns:
            raise SettingError(
                "the source reads kafka.timestamp, but the events have no column timestamp, as "
                "from Kafka's connector"
            )
        self.headers = self._needed.headers
        if self.headers and "headers" not in events.columns:
            raise SettingError(
                f"the source reads the header {self.headers[0]}, but the events have no column "
                'headers: read the topic with .option("includeHeaders", "true")'
            )
        self._divisor = TIME_UNITS[source.time_unit]

    def columns(self) -> dict[str, Column]:
        """Return the operator's columns, by name."""
        out = {name: F.col(name) for name in PLACE}
        out["value"] = F.col("value")
        if self._needed.key:
            out["key"] = F.col("key")
        if self._needed.timestamp:
            out["timestamp"] = F.unix_millis("timestamp")
        for number, name in enumerate(self.headers):
            out[f"header{number}"] = _header(name)
        return out

    def _text_at(self, path: Path) -> Column:
        """Return a column with the text at a path in the message."""
        if path[0] != KAFKA:
            return self._texts[path]
        if path[1] == "timestamp":
            # As a double, for a count of nanoseconds may overflow 64 bits on the way.
            since_ms = F.unix_millis("timestamp").cast("double")
            return F.when(since_ms >= 0, since_ms * self._divisor / 1_000).cast("string")
        if path[1] == "partition":
            return F.concat_ws("/", "topic", "partition")
        return F.col("key").cast("string") if path[1] == "key" else _header(path[2]).cast("string")

    def control(self) -> Column:
        """Return a boolean column: whether a row is a control event."""
        is_control = self._text_at(self._paths["type"]).startswith(CONTROL_PREFIX)
        if self._paths["type"][0] != KAFKA:
            # A JSON text may have escapes for letters of the prefix.
            may = self._text.contains(CONTROL_PREFIX) | self._text.contains("\\u00")
            is_control = F.when(may, is_control)
        return F.coalesce(is_control, F.lit(False))

    def partition(self, partition: PartitionKey) -> list[Column]:
        """Return the columns that are hashed to the number of a key group."""
        if keying_attribute(partition, self.source) is not None:
            return [F.col("key")]
        key_paths = (attribute_paths(attribute, self._paths) for attribute in partition)
        return [canonical_text(F.coalesce(*map(self._text_at, paths))) for paths in key_paths]

    def key_samples(self, families: Sequence[Family]) -> tuple[Column, Column] | None:
        """Return a column with samples, and one with the groups that check them.

        A sample is a message with the group of its key; it is null for most messages. Returns None
        if no family is grouped by the keys of messages.
        """
        for family in families:
            keyed = keying_attribute(family.partition, self.source)
            if keyed is None:
                continue
            value = canonical_text(
                F.coalesce(*map(self._text_at, attribute_paths(keyed, self._paths)))
            )
            groups = F.lit(family.groups)
            own_group = F.pmod(F.hash(F.col("key")), groups).cast("string")
            spread = F.pmod(F.hash("topic", "partition", "offset"), F.lit(SAMPLED_EACH)) == 0
            read = (F.col("offset") < SAMPLED_FIRST) | spread
            first = F.concat(own_group, F.lit(SEPARATOR)).cast("binary")
            sample = F.when(read, F.when(value.isNotNull(), F.concat(first, F.col("value"))))
            return sample, F.pmod(F.hash(value), groups) + F.lit(family.first)
        return None

    def time(self) -> Column:
        """Return the event time as a timestamp."""
        text = self._text_at(self._paths["time"])
        if self.source.time_format is None:
            return timestamp_of(text, self._divisor)
        return timestamp_by_format(text, self.source)


def _header(name: str) -> Column:
    """Return a column with the bytes of a header; of several with one name, the last."""
    headers = F.filter(F.col("headers"), lambda header: header["key"] == F.lit(name))
    return F.try_element_at(headers, F.lit(-1))["value"]
