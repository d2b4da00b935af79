"""What was released once: kept with its record, used at no further cost."""

from langchain_dpicl.released.classifying import classification_chain
from langchain_dpicl.released.corpus import ReleasedCorpus
from langchain_dpicl.released.examples import ReleasedExamples

__all__ = [
    "ReleasedCorpus",
    "ReleasedExamples",
    "classification_chain",
]
