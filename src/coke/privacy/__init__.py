"""Noise, masks and attacks; what private sites keep and say."""
