"""From a public guess of how groups answer to the cheapest way to ask them."""

from langchain_dpicl.planner.choosing import PARSERS, plan
from langchain_dpicl.planner.result import AnswerPlan, Option

__all__ = ["PARSERS", "AnswerPlan", "Option", "plan"]
