"""The settings of a streaming job, read from its file and flags and checked (`docs/streaming.md`).

`${NAME}` stands for an environment variable in `[kafka.properties]` only, and its value is never
shown.

The one rule: a job that is made can be started. A setting that is unknown or of a wrong kind is
refused here, before Kafka is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ketal.errors import SettingError, near
from ketal.files.user_folders import state_folder
from ketal.logs.source import Config, Source, load_config, table_of
from ketal.model.limits import DEFAULT, Limits
from ketal.streaming.job.messages import MessageReader

PORT = 9092
"""Kafka's port where the address of a server has none."""
PORT_MAX = 65_535
ENGINES = ("process", "spark")
STARTS = ("earliest", "latest")
_TEXT_FLAGS = {
    "pattern": "PATTERN",
    "engine": "--engine",
    "bootstrap_servers": "--bootstrap-servers",
    "group_id": "--group-id",
    "to": "--to",
    "state": "--state",
    "metrics_host": "--metrics-host",
}
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
_FILE_SETTINGS = ("regex", "delimiter", "rebuild")
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:\w+://)?(?:\[[^\]\s]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
"""A host and its port, after an optional protocol, which Kafka's own clients ignore."""
_IPV6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
"""An IPv6 address without brackets, and so without a port."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_ADDRESS = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Target:
    """An output for verdicts, or the place where state is saved."""

    kind: str
    """`kafka`, `file` or `stdout` for verdicts; `kafka` or `dir` for state."""
    name: str = ""
    """The topic or the path; empty for standard output. State on Spark may be at a URI."""

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
        return self.store.kind == "kafka" and self.keyed_by is not None

    @property
    def outputs(self) -> tuple[Target, ...]:
        """The outputs of verdicts and of rejections, without repetition."""
        return tuple(dict.fromkeys((self.verdicts, self.rejected)))

    def output_of(self, kind: str) -> Target:
        """Return the output for verdicts of a kind."""
        return self.rejected if kind == "rejected" else self.verdicts

    def bytes_max(self, output: Target) -> int | None:
        """Return the largest size of a verdict in an output; None if there is no limit."""
        return self.limits.message_bytes_max if output.kind == "kafka" else None


def read_job(config: str | None, flags: Mapping[str, Any]) -> Job:
    """Return the job that a file and flags describe, or flags alone; a flag overrides the file.

    Parameters
    ----------
    config : str or None
        The TOML file; relative paths in it are relative to its folder.
    flags : mapping
        `pattern`, `engine`, `bootstrap_servers`, `group_id`, `topics`, `to`, `state` and the
        fields of `Job` that only flags set; None for a flag that was not given.

    Raises
    ------
    SettingError
        If a setting is unknown, wrong or missing.
    """
    if config is None:
        return _build_job(Config(), flags, Path())
    read = load_config(config)
    try:
        return _build_job(read, flags, Path(config).parent)
    except SettingError as fault:
        raise SettingError(f"{config}: {fault}") from None


def _build_job(config: Config, flags: Mapping[str, Any], base: Path) -> Job:
    document, source, limits = config.document, config.source, config.limits
    tables = {name: table_of(document, name, keys) for name, keys in KEYS.items()}

    def text(table: str, key: str) -> str | None:
        return _text(f"[{table}] {key}", tables[table].get(key))

    def place(flag: str, table: str, key: str) -> tuple[str | None, Path]:
        """Return a place, from the flag if it is given, and the folder its path is relative to."""
        setting = text(table, key)
        return (flags[flag], Path()) if flags.get(flag) else (setting, base)

    _refuse_variables(document, ())
    for name, flag in _TEXT_FLAGS.items():
        # An empty text, as of `-b "$SERVERS"` where the variable is unset, is refused: with the
        # default, the job would run somewhere else.
        _text(flag, flags.get(name))
    engine = _engine(flags.get("engine") or document.get("engine", "process"))
    pattern = _pattern_file(flags.get("pattern"), document, base)
    topics = _topics(flags.get("topics") or source.topics)
    named = flags.get("group_id") or text("kafka", "group_id")
    group_id = _group_id(named or Path(pattern).stem)
    _check_source(source, limits)
    store = _store(*place("state", "state", "store"), group_id)
    verdicts = _target(*place("to", "output", "verdicts"), "verdicts") or Target("stdout")
    rejected = _target(text("output", "rejected"), base, "rejected") or verdicts
    _check_topics(topics, (verdicts, rejected), store)
    on_change = flags.get("on_change") or "stop"
    _check_store(store, engine, on_change)
    metrics_port, metrics_host = flags.get("metrics_port"), flags.get("metrics_host") or ""
    _check_metrics(metrics_port, metrics_host)
    return Job(
        pattern=pattern,
        topics=topics,
        bootstrap_servers=_servers(
            flags.get("bootstrap_servers") or text("kafka", "bootstrap_servers") or "localhost"
        ),
        group_id=group_id,
        group_id_given=named is not None,
        params=_params(table_of(document, "params")),
        start=_start(text("kafka", "start") or "earliest"),
        properties=_properties(tables["kafka"].get("properties", {})),
        source=source,
        verdicts=verdicts,
        rejected=rejected,
        store=store,
        limits=limits,
        until_end=bool(flags.get("until_end")),
        on_change=on_change,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        engine=engine,
        jars=_jars(tables["spark"].get("jars", []), base),
        **{key: number for name in NUMBERS for key, number in _numbers(name, tables[name])},
    )


def _engine(name: Any) -> str:
    """Return the name of an engine, or raise a SettingError if there is none of that name."""
    if name not in ENGINES:
        raise SettingError(f"unknown engine {name!r}{near(name, ENGINES)}")
    return str(name)


def _pattern_file(flag: str | None, document: Mapping[str, Any], base: Path) -> str:
    """Return the path of the pattern file; one named in a job's file is relative to `base`."""
    if flag:
        return flag
    pattern = _text("pattern", document.get("pattern"))
    if pattern is None:
        raise SettingError(
            'no pattern: set `pattern = "FILE"` in the job file (--config FILE), or run '
            "`ketal stream PATTERN`"
        )
    return str(base / pattern)


def _group_id(group_id: str) -> str:
    """Return the id of a consumer group, or raise a SettingError if it is not usable."""
    if not group_id.isprintable() or len(group_id) > 200:
        raise SettingError(
            f"the group_id must be printable and at most 200 characters, not {group_id[:60]!r}"
        )
    return group_id


def _start(start: str) -> str:
    """Return where a job starts to read topics, or raise a SettingError."""
    if start not in STARTS:
        raise SettingError(f"[kafka] start must be earliest or latest, not {start!r}")
    return start


def _check_metrics(port: int | None, host: str) -> None:
    if not 0 <= (port or 0) <= PORT_MAX:
        raise SettingError(f"--metrics-port must be an integer from 0 to {PORT_MAX}, not {port}")
    if host and port is None:
        raise SettingError("--metrics-host requires --metrics-port")


def _numbers(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, (least, most) in NUMBERS[name].items():
        value = table.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise SettingError(
                f"[{name}] {key} must be an integer of {least} or more, not {value!r}"
            )
        if value > most:
            raise SettingError(f"[{name}] {key} must be at most {most}")
        if key in table:
            yield key, value


def _text(what: str, value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise SettingError(f"{what} must be a non-empty string, not {value!r}")
    if value is not None and "\0" in value:
        raise SettingError(f"{what} must not contain the character U+0000: {value!r}")
    return value


def _refuse_variables(value: object, keys: tuple[str, ...]) -> None:
    """Raise a SettingError for `${NAME}` outside of `[kafka.properties]`."""
    if keys[:2] == ("kafka", "properties"):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_variables(inner, (*keys, str(key)))
    elif isinstance(value, str) and _VARIABLE.search(value):
        raise SettingError(
            f"{'.'.join(keys)}: ${{NAME}} is replaced from the environment only in "
            "[kafka.properties]"
        )


def _check_topics(topics: Sequence[str], outputs: Sequence[Target], store: Target) -> None:
    """Raise a SettingError if a topic is used for two purposes."""
    for target in outputs:
        if target.kind == "kafka" and target.name in topics:
            raise SettingError(
                f"the topic {target.name} is both an input and an output: the job would read its "
                "own verdicts"
            )
        if target == store:
            raise SettingError(f"the topic {store.name} contains the state: it cannot be an output")
    if store.kind == "kafka" and store.name in topics:
        raise SettingError(f"the topic {store.name} contains the state: it cannot be an input")


def _check_store(store: Target, engine: str, on_change: str) -> None:
    """Raise a SettingError if the engine does not support the state store or the change of program.

    Each engine has state of its own kind, and only the process engine can drain.
    """
    if engine != "spark":
        if store.is_remote:
            raise SettingError(
                f"the engine {engine} stores its state on this machine, not in {store.name}: "
                "choose dir:PATH, or the engine spark"
            )
        return
    if on_change == "drain":
        raise SettingError(
            "--on-change drain requires the engine process; with the engine spark, use stop or "
            "fresh, or run the new patterns in a second job with another group_id and [state] "
            "store"
        )
    if store.kind == "kafka":
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
    if source.scheme is not None and not source.scheme.states_clocks:
        raise SettingError(
            f"[source] clock {source.clock}: converting these clocks to vector clocks requires a "
            "whole log, not a stream (docs/clocks.md lists the clocks that are read from a stream)"
        )
    if source.keyed_by is not None and (
        not isinstance(source.keyed_by, str) or not source.keyed_by
    ):
        raise SettingError(
            f"[source] keyed_by must be the name of an attribute, not {source.keyed_by!r}"
        )
    MessageReader(source, limits)


def _topics(given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SettingError(f"[source] topics must be a list of names, not {given!r}")
    if not given:
        raise SettingError(
            'no topics: set `topics = ["NAME"]` in [source] of the job file (--config FILE), or '
            "pass --input NAME"
        )
    for name in map(_topic, given):
        if given.count(name) > 1:
            raise SettingError(f"the topic {name} is given twice")
    return tuple(given)


def _topic(name: object) -> str:
    """Return the name of a topic, or raise a SettingError if Kafka does not allow it."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise SettingError(
            f"{name!r} is not the name of a topic: use 1 to 249 letters, digits, . _ and -"
        )
    return name


def _servers(text: str) -> str:
    """Return Kafka's addresses, each with its port, since Java's clients require one."""
    servers = []
    for server in map(str.strip, text.split(",")):
        address = f"[{server}]" if _IPV6.fullmatch(server) else server
        parts = _SERVER.fullmatch(address)
        port = int(parts[1] or PORT) if parts else 0
        if not 0 < port <= PORT_MAX:
            raise SettingError(
                f"[kafka] bootstrap_servers must be HOST:PORT,..., with ports from 1 to {PORT_MAX},"
                f" not {text!r}"
            )
        servers.append(address if parts and parts[1] else f"{address}:{port}")
    return ",".join(servers)


def _params(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of parameters in the syntax of `--set`."""
    for name, value in table.items():
        if not isinstance(value, str | int | float | bool):
            raise SettingError(
                f'[params] {name} must be a string, a number or a boolean, for example w = "30 s"'
            )
    return {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in table.items()}


def _jars(given: object, base: Path) -> tuple[Path, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise SettingError(f"[spark] jars must be a list of files, not {given!r}")
    jars = tuple(base / one for one in given)
    for jar in jars:
        if not jar.is_file():
            raise SettingError(f"[spark] jars: {jar} is not a file")
    return jars


def _target(text: str | None, base: Path, what: str) -> Target | None:
    if text is None:
        return None
    kind, _, name = text.partition(":")
    if text == "-":
        return Target("stdout")
    if kind == "kafka" and name:
        return Target("kafka", _topic(name))
    if kind == "file" and name:
        return Target("file", str(base / name))
    raise SettingError(f"the output for {what} must be kafka:TOPIC, file:PATH or -, not {text!r}")


def _store(text: str | None, base: Path, group_id: str) -> Target:
    if text is None:
        return Target("dir", str(state_folder() / "stream" / _SAFE.sub("_", group_id)))
    kind, _, name = text.partition(":")
    if kind == "kafka" and name:
        return Target("kafka", _topic(name))
    if kind != "dir" or not name:
        raise SettingError(f"the state store must be dir:PATH or kafka:TOPIC, not {text!r}")
    store = Target("dir", name)
    if store.is_remote:
        return store
    return Target("dir", str(base / name.removeprefix("file://")))


def _properties(table: object) -> dict[str, Any]:
    """Return the properties, with environment variables replaced by their values."""
    if not isinstance(table, dict):
        raise SettingError("kafka.properties must be a table: write [kafka.properties]")
    out: dict[str, Any] = {}
    for name, value in _dotted_items(table):
        place = f"[kafka.properties] {name}"
        if not isinstance(value, str | int | float | bool):
            raise SettingError(f"{place} must be a string, a number or a boolean")
        if isinstance(value, str):
            for variable in _VARIABLE.findall(value):
                if variable not in os.environ:
                    raise SettingError(f"{place}: the environment variable {variable!r} is not set")
            value = _VARIABLE.sub(lambda match: os.environ[match[1]], value)
        out[name] = value
    return out


def _dotted_items(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys with their values: TOML reads `a.b = 1` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _dotted_items(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
