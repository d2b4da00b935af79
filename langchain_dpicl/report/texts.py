"""What every report says alike, read from `texts.yaml` beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

_SAID: dict[str, Any] = yaml.safe_load(
    resources.files(__package__).joinpath("texts.yaml").read_text("utf-8")
)


@dataclass(frozen=True)
class Question:
    """One of the hazards that NIST SP 800-226 names, as a question.

    Attributes:
        section: Where it stands in the publication.
        text: The question, in our words.
        answer: What the library knows.
        facts: What the operator has to say, by the names of `FACTS`.
    """

    section: str
    text: str
    answer: str
    facts: tuple[str, ...] = ()


PUBLIC: str = _SAID["public"]
AGAINST: str = _SAID["against"]
NEIGHBORS: list[str] = _SAID["neighbors"]
REPORTS_AGAINST: str = _SAID["reports_against"]
REPORTS_NEIGHBORS: list[str] = _SAID["reports_neighbors"]
"""The same where it is public who reports."""
CHANGES: list[str] = _SAID["changes"]
CHANGES_UNIT: str = _SAID["changes_unit"]
CHANGES_CORPUS: str = _SAID["changes_corpus"]
ASSUMPTIONS: list[str] = _SAID["assumptions"]
ACTORS: list[dict[str, str]] = _SAID["actors"]
"""Who there is, what they see, and whether the proof needs to trust them."""
LOCAL_ACTORS: list[dict[str, str]] = _SAID["local_actors"]
"""The same where the account has released randomized reports alone."""
CENTRAL_THREATS: str = _SAID["central_threats"]
LOCAL_THREATS: str = _SAID["local_threats"]
NOT_COVERED: list[dict[str, str]] = _SAID["not_covered"]
"""The page "What is not protected" has all of it, under these titles among others."""
FACTS: dict[str, str] = _SAID["facts"]
"""What only the operator can say, by name; all of it is optional."""
DATES = ("signed_on", "valid_until")
"""The facts that are dates, as ISO has them."""
NIST = [
    Question(**{**asked, "facts": tuple(asked.get("facts", ()))})
    for asked in _SAID["nist"]
]
