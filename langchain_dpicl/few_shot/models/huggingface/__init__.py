"""Next-token probabilities from a model of `transformers`."""
