"""Events: their dots, vector clocks, times and contents."""
