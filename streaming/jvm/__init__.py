"""A Java and jars for machines that have none."""
