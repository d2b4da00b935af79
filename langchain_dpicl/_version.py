"""The version, read by the build and by the ledger."""

__version__ = "0.1.0"
