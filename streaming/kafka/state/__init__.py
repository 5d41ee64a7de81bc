"""The saved state of a job's parts: in a folder, or in a topic."""
