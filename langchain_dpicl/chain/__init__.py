"""The runnable that applications use."""

from langchain_dpicl.chain.check_report import CheckedQuestion, CheckReport, Finding
from langchain_dpicl.chain.dp_chain import DPChain
from langchain_dpicl.chain.prompting import UnseenLabelsWarning

__all__ = [
    "CheckReport",
    "CheckedQuestion",
    "DPChain",
    "Finding",
    "UnseenLabelsWarning",
]
