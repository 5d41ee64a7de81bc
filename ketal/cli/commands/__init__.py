"""The commands by what they are about, a module each.

The one rule: a command is two functions, `add_arguments(parser)` and `execute(args)`, and the
text `EXAMPLE` below its `--help`.
"""
