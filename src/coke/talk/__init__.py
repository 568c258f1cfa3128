"""Conversations before training, as one site holds them."""
