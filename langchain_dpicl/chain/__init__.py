"""The runnable that applications use, and what goes before it in a conversation."""

from langchain_dpicl.chain.dp_chain import DPChain
from langchain_dpicl.chain.gate import PublicFirstGate
from langchain_dpicl.chain.history import create_question_condenser

__all__ = ["DPChain", "PublicFirstGate", "create_question_condenser"]
