"""Bytes as people read them; without NumPy, for the command line shows some before any work."""


def sized(n: int) -> str:
    """12 B, 60.8 kB, 32 MB …"""
    if n < 1000:
        return f"{n} B"
    power = min(4, (len(str(n)) - 1) // 3)
    return f"{n / 1000**power:.3g} {' kMGT'[power]}B"
