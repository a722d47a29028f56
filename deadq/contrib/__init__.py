"""Ties to other projects: each module one of them, imported only by whoever uses it."""
