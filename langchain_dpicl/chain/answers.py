"""The answer cache: what was paid for once may be said again.

Privacy:
    A released answer is public output of a charged mechanism. Giving it again is
    post-processing: no unit, no noise, no event. The key is made of public things only:
    the input, the prompts, the model's name, and the parameters of the parser and of
    the group source. It does not know the records, so an answer may be older than the
    corpus. A model is its class and name: bound arguments, temperature and address are
    left out, so that an answer may have been made with others.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain.gate import PublicFirstGate
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.exceptions import InvalidParameterError, LedgerError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.parsers.words import named


def answer_key(
    question: Question,
    *,
    prompting: Prompting,
    parser: DPOutputParser,
    groups: GroupSource,
    model: Any,
    gate: PublicFirstGate | None = None,
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
    }
    if gate is not None:
        public["gate"] = gate.public_parameters()
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


@dataclass(frozen=True, repr=False)
class StoredAnswers:
    """The answers that an account has paid for, beside its charges in the ledger."""

    budget: PrivacyBudgetHandler
    key: str

    def recall(self) -> AIMessage | None:
        """Return the stored answer, at no charge, or None.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        stored = self.budget.ledger.stored_answer(self.budget.account, self.key)
        if stored is None:
            return None
        try:
            answer = json.loads(stored)
            text, record = answer["text"] + "", answer["record"]
            first = {"status": record["status"], "charge": record["charge"]}
            record = {
                **record,
                "status": Status.CACHED.value,
                "details": {**record["details"], "first": first},
                "events": [],
                "charge": None,
                "account": self.budget.public_state(),
            }
        except (ValueError, TypeError, KeyError, RecursionError):
            raise LedgerError(
                "A stored answer can't be read: the ledger is damaged. Restore it."
            ) from None
        return AIMessage(content=text, response_metadata={"privacy": record})

    def remember(self, message: AIMessage) -> None:
        """Store an answer that the records shaped and that was charged for.

        Where the groups did not agree, nothing is stored: that may have been a failing
        model, and asking again is worth its price.
        """
        record = message.response_metadata["privacy"]
        if record["charge"] is None or record["status"] != Status.RELEASED.value:
            return
        if not str(message.text).strip():
            return
        # The answer is paid for and goes to the caller whether it is stored or not.
        with suppress(LedgerError, TypeError, ValueError):
            answer = json.dumps({"text": str(message.text), "record": record})
            self.budget.ledger.store_answer(self.budget.account, self.key, answer)
