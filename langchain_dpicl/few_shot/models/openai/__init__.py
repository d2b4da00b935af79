"""Next-token probabilities from an OpenAI-compatible server."""
