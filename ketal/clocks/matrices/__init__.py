"""Matrix clocks that count events, and matrix clocks that count messages for causal delivery."""
