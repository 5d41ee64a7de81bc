"""A real Kafka broker to try things with."""
