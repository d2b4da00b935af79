"""Audits: what a person could lose by a chain's answers, measured.

The operator runs them, on records that he may see. What an audit finds is private: it
stands in no ledger, and callers see nothing of it. A report's repr is its verdict.
"""

from langchain_dpicl.audit.report import AuditReport
from langchain_dpicl.audit.snapshots import snapshot

__all__ = ["AuditReport", "snapshot"]
