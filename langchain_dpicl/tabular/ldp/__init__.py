"""Local privacy: rows are randomized where they are; the collector sees reports."""
