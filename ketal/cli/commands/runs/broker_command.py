"""`ketal broker start|stop`: a real Kafka broker to try things with.

`start` returns when the broker serves, and leaves it running; with `--foreground` it waits until
Ctrl-C, SIGTERM or a `stop` by another process. The only line on standard output is the one that a
script needs, `bootstrap_servers=…`; all others go to standard error.

The one rule: a start that did not report a serving broker leaves none behind.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import signal
from typing import TYPE_CHECKING

from ketal.cli import FINE, INTERRUPTED, LOST, TERMINATED, Terminated, complain
from ketal.cli.options import add_repeatable, integer, split_pair
from ketal.cli.output.output_lines import open_output
from ketal.cli.process_state import signals_handled
from ketal.errors import SettingError

if TYPE_CHECKING:
    from ketal.streaming.broker.server import Broker

EXAMPLE = """\
examples:
  ketal broker start
  ketal broker start --port 9092 --dir ./kafka
  ketal broker start --foreground --property num.partitions=4
  ketal broker stop --dir ./kafka

`start` prints bootstrap_servers=127.0.0.1:PORT. The topics stay in the folder until you remove it.
The broker requires kafka-python, pyspark, and Java 17 or newer. To install all three:
  pip install 'ketal[stream,spark,java]'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "action", choices=("start", "stop"), help="start a broker, or stop the one in the folder"
    )
    parser.add_argument(
        "--dir", metavar="DIR", help="folder of the broker (default: one in your state folder)"
    )
    group = parser.add_argument_group("start")
    group.add_argument(
        "--port",
        type=integer,
        metavar="P",
        help="port for clients (default: the previous one; at the first start, a free one)",
    )
    add_repeatable(group, "--property", "NAME=VALUE", "set a broker property of Kafka (repeatable)")
    group.add_argument(
        "--foreground",
        action="store_true",
        help="stay in the foreground until the broker ends; Ctrl-C or SIGTERM stops it",
    )


def execute(args: argparse.Namespace) -> int:
    """Start or stop the broker; return the exit code."""
    from ketal.streaming.broker.server import Broker, default_folder

    # kafka-python would log an error for each call before the broker is ready.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    folder = default_folder() if args.dir is None else args.dir
    if args.action == "stop":
        if args.port is not None or args.property or args.foreground:
            raise SettingError("`ketal broker stop` takes only --dir")
        return _stop(Broker(folder))
    properties = dict(split_pair("--property", text, "num.partitions=4") for text in args.property)
    broker = Broker(folder, port=args.port, properties=properties, notify=complain)
    how = "" if args.dir is None else f" --dir {shlex.quote(args.dir)}"
    end = "Ctrl-C stops it" if args.foreground else f"`ketal broker stop{how}` stops it"
    return _start(broker, end, stay=args.foreground)


def _stop(broker: Broker) -> int:
    killed = broker.stop()
    if killed:
        complain(
            "the broker did not end in time and was killed; "
            "Kafka repairs its data at the next start"
        )
    _print(f"stopped the broker in {broker.folder}")
    return FINE


def _start(broker: Broker, end: str, *, stay: bool) -> int:
    with signals_handled((signal.SIGTERM, signal.SIGHUP), _raise_terminated):
        try:
            running = broker.start()
            complain(f"process {running.pid} in {broker.folder}; {end}")
            _print(f"bootstrap_servers={running.bootstrap_servers}")
            return _wait(broker) if stay else FINE
        except BaseException as why:
            # A process that is ended while it starts the broker, or waits for it, stops it.
            if not broker.is_own():
                raise
            _stop(broker)
            if stay and isinstance(why, KeyboardInterrupt):
                return FINE if isinstance(why, Terminated) else INTERRUPTED
            raise


def _print(text: str) -> None:
    with open_output(None) as sink:
        sink.lines([text])


def _raise_terminated(number: int, _: object) -> None:
    raise Terminated


def _wait(broker: Broker) -> int:
    """Wait until the broker ends; return the exit code."""
    code = broker.wait()
    # Java exits with the usual code after SIGTERM.
    if code == TERMINATED:
        _print("the broker was stopped")
        return FINE
    complain(f"the broker ended by itself with exit code {code}; see {broker.log}")
    return LOST
