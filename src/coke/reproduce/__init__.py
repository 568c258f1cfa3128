"""The paper's experiments (section 5), ours beside theirs."""
