"""Figures, tables and metrics; never imports torch."""
