"""Predictions for other programs on request."""
