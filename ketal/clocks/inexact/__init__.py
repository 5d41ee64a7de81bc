"""Schemes whose lesser stamps are no proof of happened-before."""
