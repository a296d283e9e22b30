"""Detectors as ONNX graphs: writing them, and scoring with them without torch."""
