"""Hyper-parameter scans with Optuna: what is searched, the studies that workers share, and what a scan found."""
