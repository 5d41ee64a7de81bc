"""State and events in, state and verdicts out: configurations, check, find, scopes."""
