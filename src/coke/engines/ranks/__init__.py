"""Rounds in blocks on the ranks of an MPI job."""
