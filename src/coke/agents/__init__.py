"""One site on a network: what it says to each neighbour, and what it keeps."""
