"""Insights: what many people talk about with an assistant, and nobody in particular.

```python
from langchain_dpicl.insights import insights

found = insights(
    conversations,
    model,
    unit_key="user",
    topics=["claim status", "dental coverage", "cancel policy"],
    epsilon=3,
    delta=1e-6,
    ledger="sqlite:///insights.db",
)
print(found.topics)  # Each with its name, count and error.
```

| module | holds |
|---|---|
| `topics.py` | `Topics`: a public list to choose from |
| `drafting.py` | `draft_topics`: such a list, from a description |
| `conversations.py` | logs of many kinds, as documents |
| `reading.py` | one person's conversations: the prompt, and what a reply names |
| `table.py` | the table's cells, thresholds and margins; `Forecast` |
| `run.py` | `insights`: charge, read, release |
| `result.py` | `Insights`: what was released; `insights.html`: its page |

The release and its proof: `mechanisms/slots.py`.
"""

from __future__ import annotations

from langchain_dpicl.insights.drafting import draft_topics
from langchain_dpicl.insights.result import Insights
from langchain_dpicl.insights.run import ainsights, forecast, insights
from langchain_dpicl.insights.table import Count, Forecast, Segment
from langchain_dpicl.insights.topics import Topics

__all__ = [
    "Count",
    "Forecast",
    "Insights",
    "Segment",
    "Topics",
    "ainsights",
    "draft_topics",
    "forecast",
    "insights",
]
