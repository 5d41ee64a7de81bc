"""The commands, a module each: `add_arguments(parser)` and `execute(args)`."""
