"""From syntax to the automaton: predicates, minterms, Glushkov, DFA, commutation."""
