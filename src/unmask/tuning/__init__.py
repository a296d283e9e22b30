"""Hyper-parameter scans with Optuna: what is searched, and the trials of a study that workers share."""
