"""Rounds: who hears whom, what each byte was for, what happened."""
