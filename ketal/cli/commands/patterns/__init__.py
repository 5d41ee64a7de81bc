"""Commands about patterns: `lint`, `fmt`, `graph` and `limits`."""
