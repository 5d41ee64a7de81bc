"""Events: their dots, counters, vector clocks, times and contents."""
