"""From rows at sites to a trained model."""
