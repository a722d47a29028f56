"""Leases: what a child holds, and who renews it."""
