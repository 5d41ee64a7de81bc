"""Clients of Kafka, and what a broker refuses them."""
