"""The command line: one file per command."""

INTERRUPTED = 130  # exit code after Ctrl-C
