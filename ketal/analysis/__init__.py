"""Static checks of a pattern: names, kinds of values, statements, bodies, parameters, guards."""
