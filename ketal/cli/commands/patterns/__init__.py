"""Commands on patterns: checked, laid out, drawn, bounded."""
