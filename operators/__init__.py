"""The causal operators, each with an obvious definition and a fast form.

`causal` and `conc` relate an event to an anchor, `order` orders an
execution before anything is offered to a pattern. Property tests hold the fast
forms equal to the obvious ones.
"""
