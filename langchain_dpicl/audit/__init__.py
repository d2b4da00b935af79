"""Audits: what a person could lose by a chain's answers, measured.

The operator runs them, on records that he may see. What an audit finds is private: it
stands in no ledger, and callers see nothing of it. A report's repr is its verdict.
"""

from langchain_dpicl.audit.attacks import aattack, attack
from langchain_dpicl.audit.mechanisms import mechanisms
from langchain_dpicl.audit.one_run import aone_run, one_run
from langchain_dpicl.audit.report import AuditReport
from langchain_dpicl.audit.snapshots import asnapshot, snapshot

__all__ = [
    "AuditReport",
    "aattack",
    "aone_run",
    "asnapshot",
    "attack",
    "mechanisms",
    "one_run",
    "snapshot",
]
