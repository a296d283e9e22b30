"""Scores of detectors and everything made of them; loads without torch."""
