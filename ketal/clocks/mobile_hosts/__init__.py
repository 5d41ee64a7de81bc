"""Schemes for mobile hosts, whose events are numbered by the stations that mediate them."""
