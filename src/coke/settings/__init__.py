"""Every knob, declared once: the options, files, tables and comparisons are made from it."""
