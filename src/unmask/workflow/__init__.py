"""Settings in, files out: what commands, studies and clusters do with events and detectors."""
