"""The replicated stack as a real program: processes, TCP, faults, and bugs that can be enabled.

The modules, from the wire up: `transport` delivers messages over TCP, with injected faults; `node`
is the protocol; `cluster` runs processes with a seeded workload; `checker` reports the faults of a
run, from the histories that nodes write and without clocks; `tables` compares these faults with the
verdicts of the patterns.
"""
