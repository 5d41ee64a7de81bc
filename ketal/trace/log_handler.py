"""Record log records of `logging` as events.

The tracer may log while it holds a lock, as may a handler of its monitor. So this handler is called
without a lock of its own, for which they would wait.

The one rule: log records of the tracer, or of a sink while it writes an event, are not recorded.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from ketal.trace.recording import is_writing
from ketal.trace.tracer import Tracer, checked_tracer


class LogHandler(logging.Handler):
    """A handler that records each log record as an event of type `log`.

    The attributes are `logger`, `level` and `message`, and `error` if the record has an exception.

    Parameters
    ----------
    tracer : Tracer
        The tracer that records the events.

    Examples
    --------
    >>> import logging
    >>> from ketal.trace import LogHandler, Tracer
    >>> logger = logging.getLogger("shop")
    >>> handler = LogHandler(Tracer("n1", "n1.jsonl"))
    >>> logger.addHandler(handler)
    >>> logger.warning("%d left", 3)
    >>> logger.removeHandler(handler)
    >>> own = logging.makeLogRecord({"name": "ketal.trace", "msg": "is not an event"})
    >>> handler.emit(own)
    >>> handler.handle(own)
    True
    >>> import ketal
    >>> [event.data.copy() for event in ketal.read_log("n1.jsonl")]
    [{'logger': 'shop', 'level': 'WARNING', 'message': '3 left'}]
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = checked_tracer(tracer)
        self._thread = threading.local()

    def handle(self, record: logging.LogRecord) -> bool:
        """Record a log record that passes the filters.

        Parameters
        ----------
        record : logging.LogRecord
            The log record.
        """
        passed: Any = self.filter(record)
        if passed:
            self.emit(record if passed is True else passed)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Record a log record as an event.

        Parameters
        ----------
        record : logging.LogRecord
            The log record.
        """
        if record.name == "ketal.trace" or is_writing() or hasattr(self._thread, "recording"):
            return
        try:
            data = {
                "logger": record.name,
                "level": record.levelname,
                "message": record.getMessage(),
            }
            if record.exc_info and record.exc_info[0] is not None:
                data["error"] = record.exc_info[0].__name__
        except Exception:
            self.handleError(record)
            return
        self._thread.recording = True
        try:
            self._tracer.record("log", **data)
        finally:
            del self._thread.recording
