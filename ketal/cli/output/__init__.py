"""The output of commands: verdicts, summaries, annotations, progress."""
