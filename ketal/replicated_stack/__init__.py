"""The replicated stack as a real program: processes, TCP, faults, and bugs that are switched on.

The modules, from the wire up: `transport` delivers messages over TCP, through faults; `node` is
the protocol; `cluster` runs processes with a seeded workload; `checker` says, from what nodes write
down themselves and from no clock, what went wrong; `tables` compares that with what patterns find.
"""
