"""Examples that were released once: kept with their record, used for ever."""

from langchain_dpicl.released.classifying import classification_chain
from langchain_dpicl.released.examples import ReleasedExamples
from langchain_dpicl.released.selector import ReleasedExampleSelector

__all__ = ["ReleasedExampleSelector", "ReleasedExamples", "classification_chain"]
