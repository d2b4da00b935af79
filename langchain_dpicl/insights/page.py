"""The page of a release: one HTML file that needs no other, and no script.

Its words stand in `insights.html` beside this file. All that it shows is public: what
was released, with its margins, and the record.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from langchain_dpicl.accounting import read_events
from langchain_dpicl.insights.table import Count, margin
from langchain_dpicl.insights.topics import topic_key
from langchain_dpicl.mechanisms.slots import SlotNoise
from langchain_dpicl.operate.pages import rendered
from langchain_dpicl.tabular.gdp.margins import SummedNoise, WholeNoise

if TYPE_CHECKING:
    from langchain_dpicl.insights.result import Insights

_LARGEST_EXPONENT = 700.0


def render(result: Insights, previous: Insights | None = None) -> str:
    """Return the page of a release.

    Args:
        result: The release.
        previous: The last period's, to which changes are shown.

    Raises:
        InvalidParameterError: If Jinja2 is not installed.
    """
    record = result.record
    epsilon = record["epsilon"]
    return rendered(
        "insights.html",
        package=__package__,
        result=result,
        record=record,
        json=json.dumps(record, indent=2, ensure_ascii=False),
        previous=previous,
        changes=None if previous is None else changes(result, previous),
        factor=math.exp(min(epsilon, _LARGEST_EXPONENT)),
        sure=100 / (1 + math.exp(-epsilon)),
    )


def changes(result: Insights, previous: Insights) -> dict[str, Count] | None:
    """Return by how many people topics have changed since the last period.

    Of R changes among L topics that both list, each holds at level 1 - 0.05 R / L by
    the law of both noises together.

    Returns:
        Now - then, of the topics that both tell; None where they can't be compared, as
        their people had different numbers of topics.

    Privacy:
        Post-processing of two releases, each of which was paid for.
    """
    if result.max_topics != previous.max_topics:
        return None
    then = {topic_key(topic.name): topic.count for topic in previous.topics}
    listed = set(map(topic_key, previous.listed.names))
    among = sum(topic_key(name) in listed for name in result.listed.names)
    both = [topic for topic in result.topics if topic_key(topic.name) in then]
    (noise, draws), other = _noise(result), _noise(previous)
    error = margin(SummedNoise(noise, draws, (other,)), max(1, len(both)), among or 1)
    return {
        topic.name: Count(topic.name, topic.count - then[topic_key(topic.name)], error)
        for topic in both
    }


def _noise(result: Insights) -> tuple[WholeNoise, int]:
    """Return the noise on a cell of a topic, and how many cells its count sums."""
    record = result.record
    noise = SlotNoise.of(read_events(record["events"]), result.max_topics)
    return noise.cell, math.prod(map(len, record["parameters"]["by"].values()))
