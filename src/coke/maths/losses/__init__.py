"""Losses and the local risks they make."""
