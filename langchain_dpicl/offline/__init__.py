"""Embedded defaults: embeddings, a chat model, a next-token model; no download.

They are stand-ins for trying things out, for tests, and for benchmarks of everything
around a model. They need no key, and behave like any LangChain `Embeddings`,
`BaseChatModel` or `NextTokenModel`. None is a language model, and no figure obtained
with them says anything about one.
"""

from langchain_dpicl.offline.answering import UNKNOWN
from langchain_dpicl.offline.chat_model import OfflineChatModel
from langchain_dpicl.offline.embeddings import HashingEmbeddings
from langchain_dpicl.offline.next_token import OfflineNextToken

__all__ = ["UNKNOWN", "HashingEmbeddings", "OfflineChatModel", "OfflineNextToken"]
