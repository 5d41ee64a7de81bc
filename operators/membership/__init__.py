"""Membership: live nodes, incarnations, and clocks that shrink when a node leaves."""
