"""The settings of a streaming job, read from its file and flags and checked (`docs/streaming.md`).

The one rule: a job that is made can be started. A setting that is unknown or of a wrong kind is
refused here, before Kafka is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ketal.errors import SettingError, faults_placed, near, value_text
from ketal.files.user_folders import state_folder
from ketal.logs.source import Config, Source, load_config, table_of
from ketal.model.limits import DEFAULT, Limits
from ketal.model.wording import unquoted
from ketal.streaming.job.addresses import PORT, PORT_MAX, read_host, read_servers
from ketal.streaming.job.client_properties import read_properties, refuse_variables
from ketal.streaming.job.messages import MessageReader

ENGINES = ("process", "spark")
STARTS = ("earliest", "latest")
INT_MAX = 2**31 - 1
"""The largest 32-bit number, in Kafka's protocol and in Java's clients."""
NUMBER_MAX = 10**15
"""The largest number of all other settings: 31,000 years in ms, which fit 64 bits in µs too."""
KEY_GROUPS_MAX = 32_768
"""The largest number of key groups, as in Flink: more than any cluster can run at once."""
NUMBERS = {
    "kafka": {"call_timeout_ms": (1_000, INT_MAX), "lost_after_ms": (0, NUMBER_MAX)},
    "state": {"commit_interval_ms": (1, NUMBER_MAX)},
    "time": {
        "lateness_ms": (0, NUMBER_MAX),
        "idle_ms": (1, NUMBER_MAX),
        "vacuous_after_ms": (0, NUMBER_MAX),
    },
    "spark": {
        "key_groups": (1, KEY_GROUPS_MAX),
        "trigger_ms": (1, NUMBER_MAX),
        "batch_messages_max": (1, NUMBER_MAX),
    },
}
"""Table → its numeric keys, which are fields of `Job`, each with its least and largest value."""
KEYS = {
    "kafka": ("bootstrap_servers", "group_id", "start", "properties", *NUMBERS["kafka"]),
    "output": ("verdicts", "rejected"),
    "state": ("store", *NUMBERS["state"]),
    "time": (*NUMBERS["time"],),
    "spark": (*NUMBERS["spark"], "jars"),
}
"""Table → its keys; `[source]` and `[limits]` have the same keys as for a log."""
_COMBINED = {"topics", "verdicts", "rejected", "store", "engine", "on_change"}
"""Fields of `Job` that may exclude each other."""
_FILE_SETTINGS = ("regex", "delimiter", "rebuild")
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_ADDRESS = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Target:
    """An output for verdicts, or the place where state is saved."""

    kind: Literal["kafka", "file", "stdout", "dir"]
    """`kafka`, `file` or `stdout` for verdicts; `kafka` or `dir` for state."""
    name: str = ""
    """The topic or the path; empty for standard output. State on Spark may be at a URI."""

    @property
    def is_topic(self) -> bool:
        """Whether this is a topic."""
        return self.kind == "kafka"

    @property
    def is_remote(self) -> bool:
        """Whether this is the URI of a folder that Spark opens, not a folder of this machine."""
        return self.kind == "dir" and _ADDRESS.match(self.name) is not None

    def __str__(self) -> str:
        return "-" if self.kind == "stdout" else f"{self.kind}:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings of a job, which `docs/streaming.md` describes."""

    pattern: str
    topics: Sequence[str]
    bootstrap_servers: str
    place: str = ""
    """What a message about a setting of the job file begins with: its name and a colon."""
    group_id: str
    group_id_given: bool = True
    """Whether the settings name the group; if not, it is named after the pattern file."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The values of the patterns' parameters, in the syntax of `--set`."""
    start: str = "earliest"
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Properties of kafka-python's clients; they may hold passwords."""
    source: Source = field(default_factory=Source)
    verdicts: Target = Target("stdout")
    rejected: Target = Target("stdout")
    store: Target = Target("dir")
    """Where the state is saved."""
    commit_interval_ms: int = 500
    lateness_ms: int = 5_000
    idle_ms: int = 30_000
    vacuous_after_ms: int = 60_000
    call_timeout_ms: int = 30_000
    lost_after_ms: int = 120_000
    limits: Limits = DEFAULT
    until_end: bool = False
    """Whether to stop at the end offsets that the partitions had when the job started."""
    on_change: str = "stop"
    """What to do if the saved state is of another program: `stop`, `fresh` or `drain`."""
    metrics_port: int | None = None
    metrics_host: str = ""
    """Where to serve metrics, if a port is given; an empty host is every local address."""
    engine: str = "process"
    key_groups: int = 16
    trigger_ms: int = 1_000
    batch_messages_max: int = 500_000
    jars: tuple[Path, ...] = ()
    """The jars of Spark's Kafka connector; empty to download them."""

    @property
    def state(self) -> Path:
        """The folder of the saved state, on this machine."""
        return Path(self.store.name)

    @property
    def keyed_by(self) -> str | None:
        """The attribute by which producers key messages; None if they do not."""
        return self.source.keyed_by

    @property
    def is_shared(self) -> bool:
        """Whether several consumers may share the job: keyed topics, and state in a topic."""
        return self.store.is_topic and self.keyed_by is not None

    @property
    def outputs(self) -> tuple[Target, ...]:
        """The outputs of verdicts and of rejections, without repetition."""
        return tuple(dict.fromkeys((self.verdicts, self.rejected)))

    @property
    def output_topics(self) -> list[str]:
        """The topics among the outputs."""
        return [target.name for target in self.outputs if target.is_topic]

    def output_of(self, kind: str) -> Target:
        """Return the output for verdicts of a kind."""
        return self.rejected if kind == "rejected" else self.verdicts

    def bytes_max(self, output: Target) -> int | None:
        """Return the largest size of a verdict in an output; None if there is no limit."""
        return self.limits.message_bytes_max if output.is_topic else None


def read_job(config: str | None, flags: Mapping[str, Any]) -> Job:
    """Return the job that a file and flags describe, or flags alone; a flag overrides the file.

    A fault of the file's settings begins with the name of the file. So does a fault of settings
    that exclude each other, unless one of them is a flag.

    Parameters
    ----------
    config : str or None
        The TOML file; relative paths in it are relative to its folder.
    flags : mapping
        `pattern`, `engine`, `bootstrap_servers`, `group_id`, `topics`, `to`, `state` and the
        fields of `Job` that only flags set; None for a flag that was not given.

    Raises a SettingError if a setting is unknown, wrong or missing.
    """
    given = _settings_of_flags(flags)
    if config is None:
        return _job(given)
    read = load_config(config, KEYS)
    place = f"{config}: "
    with faults_placed(place):
        settings = _settings_of_file(read, Path(config).parent)
    with faults_placed("" if given.keys() & _COMBINED else place):
        return _job({**settings, **given, "place": place})


def _settings_of_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Job` that flags set."""
    texts = {
        name: (flag, flags.get(flag.strip("-").replace("-", "_").lower()))
        for name, (_, _, flag) in _TEXT_SETTINGS.items()
        if flag
    }
    settings = _texts(texts, Path())
    if flags.get("topics"):
        settings["topics"] = _topics("--input", flags["topics"])
    port = flags.get("metrics_port")
    if port is not None and not 0 <= port <= PORT_MAX:
        raise SettingError(f"--metrics-port must be an integer from 0 to {PORT_MAX}, not {port}")
    if port is None and "metrics_host" in settings:
        raise SettingError("--metrics-host requires --metrics-port")
    settings["metrics_port"] = port
    settings["until_end"] = bool(flags.get("until_end"))
    if flags.get("on_change", "stop") != "stop":
        settings["on_change"] = flags["on_change"]
    return settings


def _settings_of_file(config: Config, base: Path) -> dict[str, Any]:
    """Return the fields of `Job` that a job file sets."""
    document, source, limits = config.document, config.source, config.limits
    tables = {name: table_of(document, name) for name in KEYS}
    refuse_variables(document)
    _check_source(source, limits)
    texts = {
        name: (f"[{table}] {name}" if table else name, tables.get(table, document).get(name))
        for name, (_, table, _) in _TEXT_SETTINGS.items()
    }
    return {
        **_texts(texts, base),
        **{key: number for name in NUMBERS for key, number in _numbers(name, tables[name])},
        "topics": _topics("[source] topics", source.topics),
        "params": _params(table_of(document, "params")),
        "properties": read_properties(tables["kafka"].get("properties", {}), base),
        "jars": _jars(tables["spark"].get("jars", []), base),
        "source": source,
        "limits": limits,
    }


def _job(settings: dict[str, Any]) -> Job:
    """Return the job of settings, with its defaults; refuse settings that exclude each other."""
    if "pattern" not in settings:
        raise SettingError(
            'no pattern: set `pattern = "FILE"` in the job file (--config FILE), or run '
            "`ketal stream PATTERN`"
        )
    if not settings.get("topics"):
        raise SettingError(
            'no topics: set `topics = ["NAME"]` in [source] of the job file (--config FILE), or '
            "pass --input NAME"
        )
    group_id = settings.get("group_id") or _group_id(
        "the name of the pattern file, which is the default of the group_id,",
        Path(settings["pattern"]).stem,
        Path(),
    )
    verdicts = settings.get("verdicts", Target("stdout"))
    job = Job(
        **{
            "bootstrap_servers": f"localhost:{PORT}",
            "group_id": group_id,
            "group_id_given": "group_id" in settings,
            "verdicts": verdicts,
            "rejected": verdicts,
            "store": Target("dir", str(state_folder() / "stream" / _SAFE.sub("_", group_id))),
            **settings,
        }
    )
    _check_topics(job)
    _check_store(job)
    return job


def _texts(given: Mapping[str, tuple[str, object]], base: Path) -> dict[str, Any]:
    """Return the values of settings that are text; of each, `given` has the place and the text.

    An empty text, as of `-b "$SERVERS"` where the variable is unset, is refused: with the default,
    the job would run somewhere else.
    """
    values = {}
    for name, (place, value) in given.items():
        if value is None:
            continue
        if not isinstance(value, str) or not value:
            raise SettingError(f"{place} must be a non-empty string, not {value_text(value)}")
        if "\0" in value:
            raise SettingError(f"{place} must not contain the character U+0000: {value!r}")
        values[name] = _TEXT_SETTINGS[name].read(place, value, base)
    return values


def _pattern_file(_: str, text: str, base: Path) -> str:
    return str(base / text)


def _engine(_: str, text: str, __: Path) -> str:
    if text not in ENGINES:
        raise SettingError(f"unknown engine {text!r}{near(text, ENGINES)}")
    return text


def _group_id(place: str, text: str, _: Path) -> str:
    if not text.isprintable() or len(text) > 200:
        raise SettingError(
            f"{place} must be printable and at most 200 characters, not {text[:60]!r}"
        )
    return text


def _start(place: str, text: str, _: Path) -> str:
    if text not in STARTS:
        raise SettingError(f"{place} must be earliest or latest, not {text!r}")
    return text


def _numbers(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, (least, most) in NUMBERS[name].items():
        if key not in table:
            continue
        value = table[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise SettingError(
                f"[{name}] {key} must be an integer of {least} or more, not {value_text(value)}"
            )
        if value > most:
            raise SettingError(f"[{name}] {key} must be at most {most}")
        yield key, value


def _check_topics(job: Job) -> None:
    """Raise a SettingError if a topic is used for two purposes."""
    state = job.store.name if job.store.is_topic else None
    for topic in job.output_topics:
        if topic in job.topics:
            raise SettingError(
                f"the topic {topic} is both an input and an output: the job would read its own "
                "verdicts"
            )
        if topic == state:
            raise SettingError(f"the topic {topic} contains the state: it cannot be an output")
    if state in job.topics:
        raise SettingError(f"the topic {state} contains the state: it cannot be an input")


def _check_store(job: Job) -> None:
    """Raise a SettingError if the engine does not support the state store or `--on-change`."""
    if job.engine != "spark":
        if job.store.is_remote:
            raise SettingError(
                f"the engine {job.engine} stores its state on this machine, not in "
                f"{job.store.name}: choose dir:PATH, or the engine spark"
            )
        return
    if job.on_change == "drain":
        raise SettingError(
            "--on-change drain requires the engine process; with the engine spark, use stop or "
            "fresh, or run the new patterns in a second job with another group_id and [state] "
            "store"
        )
    if job.store.is_topic:
        raise SettingError(
            "the engine spark stores its state in a checkpoint folder: set [state] store to "
            "dir:PATH"
        )


def _check_source(source: Source, limits: Limits) -> None:
    if source.format not in (None, "jsonl"):
        raise SettingError(
            f"[source] format must be jsonl, not {source.format}: a message is one JSON object"
        )
    for name in _FILE_SETTINGS:
        if getattr(source, name) is not None:
            raise SettingError(
                f"[source] {name} applies only to files: a message is one JSON object"
            )
    keyed_by = source.keyed_by
    if keyed_by is not None and not (isinstance(keyed_by, str) and keyed_by):
        raise SettingError(
            f"[source] keyed_by must be the name of an attribute, not {value_text(keyed_by)}"
        )
    with faults_placed("[source] "):
        MessageReader(source, limits)


def _topics(place: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SettingError(f"{place} must be a list of names, not {value_text(given)}")
    for name in given:
        _check_topic(place, name)
        if given.count(name) > 1:
            raise SettingError(f"{place}: the topic {name} is given twice")
    return tuple(given)


def _check_topic(place: str, name: object) -> None:
    """Raise a SettingError for the name of a topic that Kafka does not allow."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise SettingError(
            f"{place}: {name!r} is not the name of a topic: use 1 to 249 letters, digits, . _ and -"
        )


def _params(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of parameters in the syntax of `--set`."""
    for name, value in table.items():
        if not isinstance(value, str | int | float | bool):
            raise SettingError(
                f'[params] {name} must be a string, a number or a boolean, for example w = "30 s"'
            )
    return {name: unquoted(value) for name, value in table.items()}


def _jars(given: object, base: Path) -> tuple[Path, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise SettingError(f"[spark] jars must be a list of files, not {value_text(given)}")
    jars = tuple(base / one for one in given)
    for jar in jars:
        if not jar.is_file():
            raise SettingError(f"[spark] jars: {jar} is not a file")
    return jars


def _output(place: str, text: str, base: Path) -> Target:
    kind, _, name = text.partition(":")
    if text == "-":
        return Target("stdout")
    if kind == "kafka" and name:
        _check_topic(place, name)
        return Target("kafka", name)
    if kind == "file" and name:
        return Target("file", str(base / name))
    raise SettingError(f"{place} must be kafka:TOPIC, file:PATH or -, not {text!r}")


def _store(place: str, text: str, base: Path) -> Target:
    kind, _, name = text.partition(":")
    if kind == "kafka" and name:
        _check_topic(place, name)
        return Target("kafka", name)
    if kind != "dir" or not name:
        raise SettingError(f"{place} must be dir:PATH or kafka:TOPIC, not {text!r}")
    store = Target("dir", name)
    if store.is_remote:
        return store
    folder = base / name.removeprefix("file://")
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"{place}: {folder} is not a folder")
    return Target("dir", str(folder))


class _TextSetting(NamedTuple):
    """A setting that is text."""

    read: Callable[[str, str, Path], Any]
    """Returns its value, from its place and its text; relative paths are relative to the third."""
    table: str = ""
    """Its table in a job file, if it is in one; its key there is the field of `Job`."""
    flag: str = ""
    """Its flag; the value is among the arguments of the command under the name of the flag."""


_TEXT_SETTINGS = {
    "pattern": _TextSetting(_pattern_file, "", "PATTERN"),
    "engine": _TextSetting(_engine, "", "--engine"),
    "bootstrap_servers": _TextSetting(
        lambda at, text, _: read_servers(at, text), "kafka", "--bootstrap-servers"
    ),
    "group_id": _TextSetting(_group_id, "kafka", "--group-id"),
    "start": _TextSetting(_start, "kafka"),
    "verdicts": _TextSetting(_output, "output", "--to"),
    "rejected": _TextSetting(_output, "output"),
    "store": _TextSetting(_store, "state", "--state"),
    # A key of this name in a job file is unknown, and was refused when the file was read.
    "metrics_host": _TextSetting(lambda at, text, _: read_host(at, text), "", "--metrics-host"),
}
"""Field of `Job` → the setting."""
