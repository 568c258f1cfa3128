"""Which method, at what cost."""
