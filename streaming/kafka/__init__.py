"""The process engine: consumers, sessions, state and offsets stored together."""
