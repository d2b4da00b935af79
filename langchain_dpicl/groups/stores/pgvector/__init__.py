"""LangChain's `PGVectorStore`, searched group by group."""
