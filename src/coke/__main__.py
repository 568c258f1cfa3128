"""`python -m coke`."""

from coke.cli.main import main

main()
