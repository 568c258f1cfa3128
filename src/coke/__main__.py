"""`python -m coke`."""

from coke.cli import main

main()
