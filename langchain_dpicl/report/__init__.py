"""What an account has promised and spent, for the person who signs it.

`of` makes a page for a data-protection officer out of a ledger's public facts;
`verify` checks the record of a saved answer against the ledger.
"""

from langchain_dpicl.report.account import AccountReport, of
from langchain_dpicl.report.verifying import Verdict, verify

__all__ = ["AccountReport", "Verdict", "of", "verify"]
