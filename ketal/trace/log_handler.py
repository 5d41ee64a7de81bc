"""Records of `logging` as events.

The one rule: what a tracer itself logs is no event, nor is what its sink logs while it writes one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ketal.trace.tracer import Tracer


class LogHandler(logging.Handler):
    """A handler that records each log record as an event of type `log`.

    Its attributes are `logger`, `level` and `message`, and `error` of a record with an exception.

    Parameters
    ----------
    tracer : Tracer
        Whose events they are.

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
            The record.
        """
        # `handle` holds the handler's lock, so that it is this thread which is recording.
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
