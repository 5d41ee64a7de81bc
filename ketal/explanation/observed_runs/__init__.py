"""Runs of patterns that keep what an explanation needs: what they took, and how they moved."""
