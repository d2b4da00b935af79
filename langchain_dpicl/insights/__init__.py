"""Insights: what many people talk about with an assistant, and nobody in particular.

| module | holds |
|---|---|
| `topics.py` | `Topics`: a public list to choose from |
"""

from __future__ import annotations

from langchain_dpicl.insights.drafting import draft_topics
from langchain_dpicl.insights.topics import Topics

__all__ = ["Topics", "draft_topics"]
