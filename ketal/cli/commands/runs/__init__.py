"""Commands that run patterns, and say why a verdict holds."""
