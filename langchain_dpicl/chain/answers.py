"""The answer cache: what was paid for once may be said again.

Privacy:
    A released answer is public output of a charged mechanism, and so is the fact that
    a mechanism released nothing. Giving either again is post-processing: no unit, no
    noise, no event. The key is made of public things only: the normalized question, the
    prompts, and the parameters of the parser and of the group source. It does not know
    the records, so an answer may be older than the corpus.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from dataclasses import dataclass

from langchain_core.messages import AIMessage

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.outcome import Status
from langchain_dpicl.parsers import DPOutputParser


def answer_key(
    question: Question,
    *,
    prompting: Prompting,
    parser: DPOutputParser,
    groups: GroupSource,
) -> str:
    """Return the key under which a question's answer is stored.

    Questions that differ in case, white space or Unicode composition are the same.
    """
    normalized = " ".join(unicodedata.normalize("NFKC", question.text).split())
    same = Question(normalized.casefold(), question.variables)
    public = [
        type(parser).__name__,
        parser.cache_parameters(),
        groups.description,
        prompting.fixed_text(same),
    ]
    text = json.dumps(public, sort_keys=True, default=str)
    return hashlib.blake2b(
        text.encode(errors="surrogatepass"), digest_size=32
    ).hexdigest()


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
            text, record = str(answer["text"]), dict(answer["record"])
        except (ValueError, TypeError, KeyError):
            raise LedgerError(
                "A stored answer can't be read: the ledger is damaged. Restore it."
            ) from None
        first = {"status": record["status"], "charge": record["charge"]}
        record |= {
            "status": Status.CACHED.value,
            "details": {**record["details"], "first": first},
            "events": [],
            "charge": None,
            "account": self.budget.public_state(),
        }
        return AIMessage(content=text, response_metadata={"privacy": record})

    def remember(self, message: AIMessage) -> None:
        """Store an answer that was charged for."""
        record = message.response_metadata["privacy"]
        if record["charge"] is None:
            return
        answer = json.dumps({"text": str(message.text), "record": record})
        try:
            self.budget.ledger.store_answer(self.budget.account, self.key, answer)
        except LedgerError:
            # The answer is paid for and goes to the caller whether it is stored or not.
            return
