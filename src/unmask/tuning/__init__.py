"""Hyper-parameter scans with Optuna: search spaces, and the trials of a study that workers share."""
