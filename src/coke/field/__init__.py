"""One site on a network."""
