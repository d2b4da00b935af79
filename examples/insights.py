"""What 300 people ask an insurer's assistant, and nobody in particular.

    python examples/insights.py

People and conversations are invented, and a model's recorded readings are replayed, so
that this runs without a key. With your own, pass any log of conversations and a model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from langchain_dpicl.demo import RecordedReader, insurance_chats
from langchain_dpicl.insights import Insights, Topics, forecast, insights

TOPICS = Topics.of(
    {
        "Claims": ["claim status", "reimbursement too low", "sick note upload"],
        "Cover": ["dental coverage", "glasses and eye care", "hearing aids"],
        "Contract": ["premium increase", "cancel policy", "student tariff"],
        "Service": ["app login problems", "complaint about call centre"],
    },
    about="The assistant in the app of a health insurer",
)
EPSILON, DELTA = 3.0, 1e-6


def main() -> None:
    """Forecast, release once, look, and save the page."""
    print(forecast(TOPICS, epsilon=EPSILON, delta=DELTA, people_at_most=400))
    found = insights(
        insurance_chats(),
        RecordedReader(),
        unit_key="user",
        topics=TOPICS,
        epsilon=EPSILON,
        delta=DELTA,
        ledger=":memory:",
    )
    print(f"\nOf about {found.people.count} ± {found.people.error} people:")
    for one in found.topics:
        print(f"  {one.count:>4} ± {one.error}  {one.name}")
    print(f"Too few to tell: {', '.join(found.too_few) or 'none'}.")
    print(f"Not listed: {found.other.count} ± {found.other.error}. Draft more topics!")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "insights.json"
        found.save(path)
        page = Insights.load(path).html()
    print(f"\nA page of {len(page):,} characters: insights.html would show it.")
    print(f"Spent: epsilon {found.record['epsilon']:.2f}, once, for all that is here.")


if __name__ == "__main__":
    main()
