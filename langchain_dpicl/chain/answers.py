"""The answer cache: what was paid for is drawn once, and may be said again.

With `cache=True` an answer is bought under the question's key. What is drawn is the
outcome; its wording is stored beside it.

Privacy:
    Unit, relation, sensitivity, noise and event: the mechanism's, whose one draw for
    one charge is stored (`budget.paid`). Storing, finding and wording a draw is
    post-processing: no unit, no noise, no event.

    Where no answer came out, that is stored and given again, too, unless too many calls
    failed: asking for that again is worth its price. Both follow from what was
    released.

    The key is made of public things only: the input, the prompts, the model's name, the
    parameters of the parser and of the group source, a question's filter among them,
    and whether noise is seeded. It does not know the records, so an answer may be older
    than the corpus. A model is its class and name: bound arguments, temperature and
    address are left out, so that an answer may have been made with others.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from langchain_dpicl.budget import Paid
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.common.outcome import CALLS_FAILED, Outcome
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.parsers.words import named


def answer_key(
    question: Question,
    *,
    prompting: Prompting,
    parser: DPOutputParser,
    groups: GroupSource,
    model: Any,
) -> str:
    """Return the key under which a question's answer is stored.

    Questions that differ in white space or Unicode composition alone are the same.

    Raises:
        InvalidParameterError: If the input or the parser holds something that can't be
            told from others, such as a function.
    """
    normalized = " ".join(unicodedata.normalize("NFC", question.text).split())
    same = Question(normalized, question.variables)
    public = {
        "question": normalized,
        "variables": question.variables,
        "templates": prompting.templates(same),
        "rewrite": prompting.rewrite_text(parser.rewrite_prompt, same),
        "parser": parser.cache_parameters(normalized),
        "groups": groups.description,
        "model": named(model),
        "is_seeded": (parser.random or current()).is_seeded,
    }
    try:
        text = json.dumps(public, sort_keys=True)
    except (TypeError, ValueError):
        text = ""
    if not text:
        raise InvalidParameterError(
            "With cache=True the input must be made of text and numbers, so that one "
            "can be told from another."
        )
    data = text.encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def is_given(values: Sequence[Any]) -> bool:
    """Return whether a stored draw is given again.

    Where too many group calls failed, asking again is worth its price.
    """
    return Outcome.from_dict(values[0]).details.get("reason") != CALLS_FAILED


def remember(paid: Paid, wording: str) -> None:
    """Store the wording of an outcome, if it can be."""
    with suppress(LedgerError):
        paid.keep_note(wording)
