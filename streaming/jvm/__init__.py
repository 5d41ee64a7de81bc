"""Java, and the jars of Kafka and of Spark's connector, for machines that lack them."""
