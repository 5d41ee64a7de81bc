"""Explanations: the causal structure of an execution, and the reasons for verdicts."""
