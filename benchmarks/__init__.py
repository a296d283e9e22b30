"""What `make bench` runs: ratios are measured side by side in one run, never against stored figures."""
