"""Searches: regions, background estimates, significances and limits."""
