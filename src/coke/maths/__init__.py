"""What the paper says: NumPy, SciPy and (for graphs) networkx; no clock, log, file or socket."""
