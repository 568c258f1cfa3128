"""How frames reach neighbours."""
