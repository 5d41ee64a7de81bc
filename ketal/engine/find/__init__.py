"""Parts that both engines of `find` share: findings, windows, and events that break a `not`."""
