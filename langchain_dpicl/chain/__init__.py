"""`DPChain`: a question in, one differentially private answer out."""

from langchain_dpicl.chain.dp_chain import DPChain
from langchain_dpicl.chain.gate import PublicFirstGate

__all__ = ["DPChain", "PublicFirstGate"]
