"""One file per command: what it takes, and how it shows what it did."""
