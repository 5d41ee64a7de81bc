"""The figures of a job, as Prometheus text (exposition format 0.0.4) and as a line on a terminal.

The engine updates them about once a second, and also when it goes back to the last commit, since
nothing else updates them while Kafka is away. The threads of the server read the text that was
rendered last, so that a scrape never touches the engine.

The one rule: a counter only grows while the process lives, and a figure that is not known yet has a
description but no number.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ketal.errors import SettingError
from ketal.model.summaries import Tally
from ketal.model.verdicts.verdict_kinds import Verdict
from ketal.model.wording import counted
from ketal.runtime.silence.vacuity import Findings

_HELP = {
    "messages_total": "Messages consumed.",
    "messages_per_second": "Messages consumed per second.",
    "records": "Messages of this execution, by outcome.",
    "verdicts_total": "Verdicts, including those undone by a restart from the last commit.",
    "lag_messages": "Messages of a partition that have not been consumed yet.",
    "held_back_events": "Events that have arrived but have not been released yet.",
    "live_runs": "Check runs and partial matches.",
    "commits_total": "Commits.",
    "commit_seconds_total": "Time spent in commits.",
    "restarts_total": "Restarts from the last commit.",
    "vacuous": "Names, events and steps of a pattern that no event has met.",
    "unknown": "Comparisons of a pattern that were unknown for some events.",
    "parts": "Parts of the job that are assigned to this process.",
    "watermark_seconds": "The watermark.",
}
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLIENT_S = 10.0
"""After how long the connection of a client that sends nothing is closed."""


@dataclass
class Hooks:
    """The functions that an engine calls with its verdicts, notices and figures."""

    show: Callable[[Verdict], None]
    """Shows a verdict on standard output."""
    flush: Callable[[], None]
    """Flushes standard output."""
    notify: Callable[[str], None]
    """Reports a notice about the job, one sentence."""
    report: Callable[[Figures], None] = field(default=lambda figures: None)
    """Reports the figures; called about once a second."""


class Figures:
    """The counts and gauges of a job."""

    def __init__(self) -> None:
        self.verdicts: Counter[tuple[str, str]] = Counter()
        """(kind, pattern) → number of verdicts; the pattern of a rejection is empty."""
        self.commits = 0
        self._commit_s = 0.0
        self.restarts = 0
        self.consumed = 0
        self._rate = 0.0
        self.lag: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self._live_runs: int | None = None
        self._watermark_s: float | None = None
        self.parts: tuple[int, int] | None = None
        self.findings: Findings = {}
        """The vacuity findings and the unknown comparisons of each pattern so far."""
        self._last: tuple[float, int] | None = None
        self.text = self._render()

    def count_verdicts(self, kind: str, pattern: str | None, number: int = 1) -> None:
        """Count verdicts of a kind."""
        self.verdicts[kind, pattern or ""] += number

    def count_commit(self, took_s: float) -> None:
        """Count a commit and the time that it took."""
        self.commits += 1
        self._commit_s += took_s

    def count_restart(self) -> None:
        """Count a return to the last commit."""
        self.restarts += 1
        self.text = self._render()

    def clear_rate(self) -> None:
        """Set the rate to 0 until the next update: nothing is consumed in an outage."""
        self._rate = 0.0
        self.text = self._render()

    def update(
        self,
        *,
        now_s: float,
        messages: int,
        control: int,
        lag: Mapping[str, int],
        events: Mapping[str, int],
        live_runs: int,
        watermark_s: float | None,
        parts: tuple[int, int] | None = None,
    ) -> None:
        """Set the gauges, and render all figures as text."""
        if self._last is not None and now_s > self._last[0]:
            # After a return to the last commit `messages` is smaller than before.
            new = max(0, messages - self._last[1])
            self._rate = new / (now_s - self._last[0])
            self.consumed += new
        else:
            self.consumed = messages
        self._last = (now_s, messages)
        self.lag = dict(lag)
        self._events = {**Tally().to_dict(), **events, "control": control}
        self._live_runs = live_runs
        self._watermark_s = watermark_s
        self.parts = parts
        self.text = self._render()

    def line(self) -> str:
        """Return the figures as one line for people."""
        kinds: Counter[str] = Counter()
        for (kind, _), number in self.verdicts.items():
            kinds[kind] += number
        counts = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))
        parts = [
            counted(self.consumed, "message"),
            f"{self._rate:,.0f}/s",
            f"lag {sum(self.lag.values()):,}",
            f"held back {self._events.get('held_back', 0):,}",
            f"live runs {self._live_runs or 0:,}",
            counts or "no verdicts",
        ]
        if self.parts is not None:
            parts.insert(0, "{} of {} parts".format(*self.parts))
        return " · ".join(parts)

    def _render(self) -> str:
        values: dict[str, Mapping[str, float | None] | float | None] = {
            "messages_total": self.consumed,
            "messages_per_second": self._rate,
            "records": {_labels(outcome=k): n for k, n in self._events.items() if k != "read"},
            "verdicts_total": {
                _labels(verdict=kind, pattern=pattern): n
                for (kind, pattern), n in sorted(self.verdicts.items())
            },
            "lag_messages": {_labels(partition=k): n for k, n in sorted(self.lag.items())},
            "held_back_events": self._events.get("held_back"),
            "live_runs": self._live_runs,
            "commits_total": self.commits,
            "commit_seconds_total": self._commit_s,
            "restarts_total": self.restarts,
            "parts": self.parts and self.parts[0],
            "watermark_seconds": self._watermark_s,
        }
        for finding in ("vacuous", "unknown"):
            lists = sorted(self.findings.get(finding, {}).items())
            values[finding] = {_labels(pattern=name): len(some) for name, some in lists}
        out: list[str] = []
        for name, text in _HELP.items():
            value = values[name]
            numbers = value if isinstance(value, Mapping) else {"": value}
            kind = "counter" if name.endswith("_total") else "gauge"
            out += [f"# HELP ketal_{name} {text}", f"# TYPE ketal_{name} {kind}"]
            out += [
                f"ketal_{name}{labels} {number}"
                for labels, number in numbers.items()
                if number is not None
            ]
        return "\n".join([*out, ""])


def _labels(**values: str) -> str:
    """Return labels as Prometheus text, without those that are empty."""
    labels = ",".join(f'{k}="{_escaped(v)}"' for k, v in values.items() if v)
    return f"{{{labels}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Handler(BaseHTTPRequestHandler):
    """Answers a request with the text that was rendered last."""

    server: MetricsServer
    timeout = CLIENT_S

    def do_GET(self) -> None:
        is_known = self.path.partition("?")[0] in ("/", "/metrics")
        body = self.server.figures.text.encode() if is_known else b"not found; see /metrics\n"
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class MetricsServer(ThreadingHTTPServer):
    """Serves the figures at `/metrics`, each client on a thread of its own.

    Port 0 stands for any free port, an empty host for every address of this machine.

    Raises a SettingError if the port is taken, or the address is not one of this machine.
    """

    daemon_threads = True

    def __init__(self, figures: Figures, port: int, host: str = "") -> None:
        self.figures = figures
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as fault:
            why = fault.strerror or fault
            at = f"port {port} of {host}" if host else f"port {port}"
            raise SettingError(f"metrics cannot be served on {at}: {why}") from None
        self.port = self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what a request raised, unless its connection failed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop serving and close the port."""
        self.shutdown()
        self.server_close()
