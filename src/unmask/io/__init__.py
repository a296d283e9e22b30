"""Files of others, and ours."""
