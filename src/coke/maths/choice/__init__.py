"""What a site reckons from its own rows so that all can choose a model: no message in here."""
