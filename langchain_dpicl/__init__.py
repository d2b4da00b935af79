"""Differentially private answers over sensitive records, for LangChain."""
