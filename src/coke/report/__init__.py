"""Pictures, pages and tables of a run."""
