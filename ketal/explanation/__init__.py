"""Why: the causal structure of an execution, and the reasons of verdicts."""
