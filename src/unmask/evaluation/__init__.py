"""Metrics of scores, with intervals; never imports torch."""
