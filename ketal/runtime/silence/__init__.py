"""Diagnoses of a run that found nothing: names, guards and comparisons that no event satisfied."""
