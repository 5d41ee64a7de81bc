"""Record log records of `logging` as events.

The one rule: log records of the tracer, or of its sink while it writes an event, are not recorded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ketal.trace.tracer import Tracer


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
    >>> handler.emit(logging.makeLogRecord({"name": "ketal.trace", "msg": "is no event"}))
    >>> import ketal
    >>> [event.data.copy() for event in ketal.read_log("n1.jsonl")]
    [{'logger': 'shop', 'level': 'WARNING', 'message': '3 left'}]
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer
        self._recording = False

    def emit(self, record: logging.LogRecord) -> None:
        """Record a log record as an event.

        Parameters
        ----------
        record : logging.LogRecord
            The log record.
        """
        # `Handler.handle` holds the handler's lock, so `_recording` was set by this thread.
        if record.name == "ketal.trace" or self._recording:
            return
        try:
            data = {
                "logger": record.name,
                "level": record.levelname,
                "message": record.getMessage(),
            }
        except Exception:
            self.handleError(record)
            return
        if record.exc_info and record.exc_info[0] is not None:
            data["error"] = record.exc_info[0].__name__
        self._recording = True
        try:
            self._tracer.record("log", **data)
        finally:
            self._recording = False
