"""The random features φ: kernels, draws, waves, and bases of them."""
