"""Embedded defaults: an embedding and a chat model that need nothing else.

Both are stand-ins for trying things out, for tests, and for benchmarks of everything
around a model. They need no download and no key, and behave like any LangChain
`Embeddings` and `BaseChatModel`. Neither is a language model, and no figure obtained
with them says anything about one.
"""

from langchain_dpicl.offline.chat_model import UNKNOWN, OfflineChatModel
from langchain_dpicl.offline.embeddings import HashingEmbeddings

__all__ = ["UNKNOWN", "HashingEmbeddings", "OfflineChatModel"]
