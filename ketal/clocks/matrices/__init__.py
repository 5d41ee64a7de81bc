"""Matrix clocks: of events, and of messages for causal delivery."""
