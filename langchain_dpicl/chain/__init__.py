"""`DPChain`: a question in, one differentially private answer out."""

from langchain_dpicl.chain.dp_chain import DPChain

__all__ = ["DPChain"]
