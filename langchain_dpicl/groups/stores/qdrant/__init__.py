"""LangChain's `QdrantVectorStore`, searched group by group."""
