"""What a parser says of itself: defaults, records, cache keys, and how it reads."""

from __future__ import annotations

import json

from langchain_dpicl.parsers import (
    VoteOutputParser,
)

# -- public parameters -----------------------------------------------------------------


def test_drafted_labels_are_known_by_the_word_and_not_by_the_object() -> None:
    # As a settings file would give it: equal, and another object.
    read = VoteOutputParser(labels=json.loads('"draft"'))
    written = VoteOutputParser(labels="draft")
    assert read.cache_parameters("Which?") == written.cache_parameters("Which?")
    assert read.public_parameters() == written.public_parameters()


# -- what a chain asks a parser --------------------------------------------------------


# -- how one reply is read -------------------------------------------------------------


# -- values that can't be changed or seen ----------------------------------------------


# -- votes -----------------------------------------------------------------------------
