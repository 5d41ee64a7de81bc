"""Kafka's clients: their properties, their workarounds, and the classification of their errors."""
