"""Jobs of the operator: erasing a person."""

from langchain_dpicl.operate.erasure import ErasureCertificate, erase

__all__ = ["ErasureCertificate", "erase"]
