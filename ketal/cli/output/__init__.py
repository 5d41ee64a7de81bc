"""What commands print: verdicts, summaries, annotations, progress."""
