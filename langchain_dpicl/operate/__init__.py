"""Jobs of the operator: audit a chain, report an account, check a record, erase.

They block; in an event loop use `asyncio.to_thread`. Names are imported when they are
first used: a report needs no model library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dpicl.operate.audit import AuditReport as AuditReport
    from langchain_dpicl.operate.audit import snapshot as snapshot
    from langchain_dpicl.operate.erasure import ErasureCertificate as ErasureCertificate
    from langchain_dpicl.operate.erasure import erase as erase
    from langchain_dpicl.operate.report import AccountReport as AccountReport
    from langchain_dpicl.operate.report import account_report as account_report
    from langchain_dpicl.operate.verifying import Verdict as Verdict
    from langchain_dpicl.operate.verifying import verify as verify

_HOMES = {
    "AccountReport": "report",
    "AuditReport": "audit",
    "ErasureCertificate": "erasure",
    "Verdict": "verifying",
    "account_report": "report",
    "erase": "erasure",
    "snapshot": "audit",
    "verify": "verifying",
}

if not TYPE_CHECKING:  # Tools that check types read the imports above.
    __all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
