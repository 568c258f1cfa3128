"""Where the agents are, and how their rounds are made."""
