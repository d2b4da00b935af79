"""Embedded defaults: embeddings and a chat model; no download.

They are stand-ins for trying things out, for tests, and for benchmarks of everything
around a model. They need no key, and behave like any LangChain `Embeddings` and
`BaseChatModel`. Neither is a language model, and no figure obtained with them says
anything about one.
"""

from langchain_dpicl.offline.answering import UNKNOWN
from langchain_dpicl.offline.chat_model import OfflineChatModel
from langchain_dpicl.offline.embeddings import HashingEmbeddings

__all__ = ["UNKNOWN", "HashingEmbeddings", "OfflineChatModel"]
