"""What is asked of a problem beside training it."""
