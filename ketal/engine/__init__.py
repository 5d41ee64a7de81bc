"""The engine: takes state and events, returns state and verdicts."""
