"""The causal operators: each its check, its obvious meaning and its fast form.

`causal` and `conc` relate an event to an anchor, `causal_order` orders the
execution before anything is offered to a pattern. The obvious forms are what
the property tests hold the fast ones equal to.
"""
