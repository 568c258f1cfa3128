"""Rows in, sites out."""
