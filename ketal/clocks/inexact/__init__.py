"""Schemes whose order of stamps does not prove happened-before."""
