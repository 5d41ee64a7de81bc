"""Commands that run patterns: `run`, `stream`, `explain`, `demo`, and the broker for `stream`."""
