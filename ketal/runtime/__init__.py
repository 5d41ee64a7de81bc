"""One execution from records to verdicts, and its drivers."""
