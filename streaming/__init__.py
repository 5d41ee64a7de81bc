"""Streams: Kafka and Spark drivers around the core (DESIGN 7).

A driver reads events, hands them to the core, writes verdicts, and stores state and offsets
together; what an event means is not decided here. kafka-python and pyspark are imported in this
room alone, and only the command line imports this room, lazily: `import ketal` needs neither.
"""
