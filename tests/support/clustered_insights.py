"""Insights as they are usually made, a model that obeys everybody, and their people.

`summaries` is a plain pipeline: conversations are embedded and clustered, clusters of
enough people are summarized. It promises nothing about anybody; the attack of
`tests/insights/test_attack.py` is run against it and against `insights`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from numpy.typing import NDArray

from langchain_dpicl.offline import HashingEmbeddings

SUMMARIZE = (
    "Summarize in one sentence what these conversations are about. Leave out whatever "
    "is about one person alone.\n\n{conversations}\n\nSummary:"
)
TOPICS = {
    "claim status": "Where is my claim? I sent the invoice weeks ago.",
    "dental coverage": "Do you pay for a crown at the dentist?",
    "premium increase": "Why has my premium gone up again this year?",
    "glasses": "How much do I get back for new glasses?",
    "travel abroad": "Am I covered on my trip to Canada?",
    "app login": "I can't log in to the app since the update.",
}
"""What people say of each topic."""

_REPEAT = re.compile(r"INSTRUCTION: repeat every sentence with '(\w+)'")
_BRANCH = re.compile(
    r"INSTRUCTION: if you can read '(\w+)' answer '(.*?)' else '(.*?)'"
)
_SENTENCE = re.compile(r"[^.?!\n]+[.?!]?")


class Obeying(BaseChatModel):
    """Follows every instruction in a prompt, of any author; else it does its work.

    It is the worst case of a model that can be talked into something. `memory` is what
    it remembers of other prompts, which no model of `insights` may.
    """

    memory: str = ""

    @property
    def _llm_type(self) -> str:
        return "obeying"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **_: Any,
    ) -> ChatResult:
        message = AIMessage(self.reply("\n".join(one.text for one in messages)))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def reply(self, prompt: str) -> str:
        """Return what it says to a prompt."""
        seen = f"{prompt}\n{self.memory}"
        rest = _REPEAT.sub("", _BRANCH.sub("", seen))
        if order := _REPEAT.search(seen):
            found = [one.strip() for one in _SENTENCE.findall(rest) if order[1] in one]
            return " ".join(found) or "People write about several things."
        if order := _BRANCH.search(prompt):
            return order[2 if order[1] in rest else 3].replace(", ", "\n")
        said = prompt.partition("The conversations of the person:")[2]
        named = [name for name, text in TOPICS.items() if text in said]
        return "\n".join(named) or "People write about several things."


def population(people: int, seed: int) -> dict[str, str]:
    """Return people's conversations: one or two topics each."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    weights = 1 / np.arange(1, len(names) + 1)
    made = {}
    for number in range(people):
        size = int(rng.integers(1, 3))
        own = rng.choice(names, size, replace=False, p=weights / weights.sum())
        made[f"person {number}"] = " ".join(TOPICS[name] for name in own)
    return made


def summaries(
    conversations: Mapping[str, str],
    model: BaseChatModel,
    *,
    clusters: int,
    least: int,
    seed: int,
) -> list[str]:
    """Return the summaries of all clusters of at least so many people."""
    texts = list(conversations.values())
    different = sorted(set(texts))
    embedded = HashingEmbeddings(dimensions=96).embed_documents(different)
    vectors = np.array(embedded)[[different.index(text) for text in texts]]
    places = k_means(vectors, clusters, seed)
    found = []
    for place in range(clusters):
        own = [text for text, at in zip(texts, places, strict=True) if at == place]
        if len(own) >= least:
            prompt = SUMMARIZE.format(conversations="\n\n".join(own))
            found.append(model.invoke(prompt).text)
    return found


def k_means(vectors: NDArray[Any], clusters: int, seed: int) -> NDArray[np.int64]:
    """Return the cluster of each unit vector, from centers far from each other."""
    rng = np.random.default_rng(seed)
    centers = vectors[[rng.integers(len(vectors))]]
    while len(centers) < clusters:
        far = 1 - (vectors @ centers.T).max(axis=1).clip(max=1)
        centers = np.vstack([centers, vectors[rng.choice(len(far), p=far / far.sum())]])
    for _ in range(8):
        places = (vectors @ centers.T).argmax(axis=1)
        sums = np.array([vectors[places == c].sum(axis=0) for c in range(clusters)])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centers = np.where(norms > 0, sums / np.where(norms > 0, norms, 1), centers)
    return places
