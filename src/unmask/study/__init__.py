"""The published configurations, and how settings become tokenizers and detectors."""
