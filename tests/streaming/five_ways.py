"""The executions that are judged in five ways: the corpus, and patterns over real logs.

The pattern decides in which form its execution is delivered, such that equal answers are promised:
an order-independent pattern gets its events in any order; a pattern under `order arrival` gets each
scope in one partition; any other pattern under CausalOrder gets its events in any order too, but is
rewritten to run under the total order of its nodes. An order-independent `check` is run in both
forms: any order promises the same kind of verdict only, and `total` the same event as well.

The one rule: every folder of the corpus takes part.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from functools import cache, partial

import ketal
from ketal.logs import Source, load_config, open_source
from tests.conftest import SHARED_DATA
from tests.examples.transcripts import ROOT
from tests.sampling import LONG
from tests.streaming.ways import Execution, by_scope, in_total_order, shuffled
from tests.test_corpus import CASES, CORPUS, Case
from tests.test_real_logs import RPC

SEED = 20


def lines_of(name: str) -> list[bytes]:
    return (CORPUS / name / "events.jsonl").read_bytes().splitlines()


@cache
def text_of(name: str) -> str:
    return (CORPUS / name / "pattern.ketal").read_text()


def _plain(name: str) -> Execution:
    return shuffled(name, Case(name).program, lines_of(name), SEED)


def _arrival(name: str) -> Execution:
    return by_scope(name, Case(name).program, lines_of(name), SEED)


def _total(name: str) -> Execution:
    lines = lines_of(name)
    program = ketal.compile(in_total_order(text_of(name), lines))
    return shuffled(f"{name}-total", program, lines, SEED)


def _corpus() -> dict[str, Callable[[], Execution]]:
    out: dict[str, Callable[[], Execution]] = {}
    for name in CASES:
        compiled = Case(name).compiled
        if not compiled.causal:
            out[name] = partial(_arrival, name)
            continue
        if compiled.order_independent:
            out[name] = partial(_plain, name)
        if not compiled.order_independent or compiled.kind == "check":
            out[f"{name}-total"] = partial(_total, name)
    return out


OF_THE_CORPUS = _corpus()

# --- real logs --------------------------------------------------------------------

FOLDER = ROOT / "examples" / "real_logs"
LOGS = {
    "simpledb": ("simpledb", "shiviz/simpledb.log", ""),
    "broadcast": ("broadcast", "shiviz/reliable-broadcast.log", ""),
    "simple-broadcast": ("broadcast", "shiviz/simple-reliable-broadcast.log", ""),
    "facebook": ("facebook", "shiviz/facebook.log", ""),
    "facebook-second": ("facebook", "shiviz/facebook-multiple.log", "Execution #2"),
    "comparison": ("facebook", "shiviz/multiple-comparison.log", "Some events are different "
                   "from base"),
    "rpc": ("", "shiviz/RpcClientServer.log", ""),
    "voldemort": ("voldemort", "shiviz/voldemort-simple-threadnames.log", ""),
    "token": ("token", "tlaplus/VectorClocksTests.ndjson", ""),
}  # fmt: skip
"""Log → (configuration in the examples, file, execution); a topic holds one execution."""

PAIRS = """
pattern Pairs {
    order CausalOrder; event E = true; First = E; Second = Conc(E);
    find any First Second;
}
"""
ALTERNATING = """
pattern Alternating {
    order CausalOrder;
    event Any = true; First = Any; Other = Any && type != First.type;
    find next First Other;
}
pattern Growing {
    order CausalOrder; partition by node;
    event Any = true; First = Any; Next = Conc(Any, First) || Any && type != First.type;
    find strict First Next; within 3 events;
}
"""
EACH_NODE = """
pattern EachNode {
    partition by node;
    event Any = true; First = Any; Other = Any && type != First.type;
    find next First Other; within 4 events;
}
"""
SOURCE_OF_RPC = Source(format="shiviz", regex=RPC)
PATTERNS = {
    "barrier": "simpledb",
    "exchange": "simpledb",
    "broadcast": "broadcast",
    "stale_page": "facebook",
    "connections": "voldemort",
    "token": "token",
}
"""Pattern of the examples → log."""

PAIRS_OF = ("broadcast", "simple-broadcast", "facebook", "facebook-second", "comparison", "rpc")
"""Logs with few enough concurrent pairs for `PAIRS`."""


@cache
def lines_of_log(log: str) -> tuple[bytes, ...]:
    """Return the events of a real log as JSON lines, in the order of its file."""
    config, path, execution = LOGS[log]
    source = load_config(FOLDER / f"{config}.toml").source if config else SOURCE_OF_RPC
    out = io.BytesIO()
    ketal.write_jsonl(open_source(source, [SHARED_DATA / path]).executions[execution], out)
    return tuple(out.getvalue().splitlines())


def _example(name: str, log: str) -> Execution:
    program = ketal.load(FOLDER / f"{name}.ketal")
    return shuffled(f"log-{name}", program, lines_of_log(log), SEED)


def _pairs(log: str) -> Execution:
    return shuffled(f"log-{log}-pairs", ketal.compile(PAIRS), lines_of_log(log), SEED)


def _total_of_log(log: str) -> Execution:
    lines = lines_of_log(log)
    program = ketal.compile(in_total_order(ALTERNATING, lines))
    return shuffled(f"log-{log}-total", program, lines, SEED)


def _arrival_of_log(log: str) -> Execution:
    return by_scope(f"log-{log}-arrival", ketal.compile(EACH_NODE), lines_of_log(log), SEED)


def _real_logs() -> dict[str, Callable[[], Execution]]:
    out: dict[str, Callable[[], Execution]] = {}
    for name, log in PATTERNS.items():
        out[f"log-{name}"] = partial(_example, name, log)
    for log in PAIRS_OF:
        out[f"log-{log}-pairs"] = partial(_pairs, log)
    for log in LOGS:
        out[f"log-{log}-total"] = partial(_total_of_log, log)
        out[f"log-{log}-arrival"] = partial(_arrival_of_log, log)
    return out


OF_REAL_LOGS = _real_logs()
EXECUTIONS = {**OF_THE_CORPUS, **OF_REAL_LOGS}

_FEW = ("log-exchange", "log-connections", "log-broadcast-pairs", "log-facebook-total",
        "log-broadcast-arrival")  # fmt: skip
CONSUMED = [name for name in EXECUTIONS if LONG or name in OF_THE_CORPUS or name in _FEW]
"""Executions that the process engine consumes."""

_KINDS = (
    "design_forked_blocks",
    "design_stack_pop_after_off-total",
    "check_incomplete",
    "log-exchange",
)
STREAMED = [name for name in EXECUTIONS if LONG or name in _KINDS]
"""Executions that Spark streams: `check` and `find`, with and without partitions, in each form."""

TABLES = [
    name
    for number, name in enumerate(CONSUMED)
    if LONG or name in _FEW or name in _KINDS or number % 6 == 0
]
"""Executions that Spark reads from Parquet."""


def is_here(name: str) -> bool:
    """Return whether the log of an execution is present on this machine."""
    return name in OF_THE_CORPUS or SHARED_DATA.is_dir()


def executions(names: Iterable[str]) -> list[Execution]:
    """Return the named executions whose logs are present on this machine."""
    return [execution(name) for name in dict.fromkeys(names) if is_here(name)]


@cache
def execution(name: str) -> Execution:
    """Return an execution by its name."""
    made = EXECUTIONS[name]()
    assert made.name == name
    return made
