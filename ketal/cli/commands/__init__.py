"""The commands, one module each, in folders by subject.

The one rule: a command is two functions, `add_arguments(parser)` and `execute(args)`, and the text
`EXAMPLE`, which is the end of its `--help`.
"""
