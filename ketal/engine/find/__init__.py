"""What every `find` has: findings, windows and the events that break a `not`."""
