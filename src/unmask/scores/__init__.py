"""What detectors leave behind; loads without torch."""
