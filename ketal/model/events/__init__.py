"""Events: what happened at a node, under its dot, with its vector clock."""
