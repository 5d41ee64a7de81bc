"""The hold-back queues of an execution, and the runs that they release events to."""
