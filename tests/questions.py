"""How the tests ask: corpora in which texts tie, accounts, and what a vote shows."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from faces import PrivacyBudgetHandler, RetrievedGroups, VoteOutputParser, record
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from scripted import ScriptedEmbeddings
from worlds import UNIT, without

SALT = bytes(range(32))
WORDS = ("cough", "rash", "fever")
ASKED = "cough cough rash"
UNITS: tuple[str | int, ...] = ("p0", 1, "1b", "ä", "😀", -5, "None", "p 7")
"""Ids as they come: texts, numbers, texts that look like numbers, odd letters."""

Bits = list[list[str]]
"""What each slot holds, in order."""

Draw = Callable[[list[Document]], Bits]


def counted(text: str) -> list[float]:
    """Count the words: texts of the same words tie, to the bit."""
    return [float(text.split().count(word)) for word in WORDS]


EMBEDDING = ScriptedEmbeddings(counted)


def note(unit: Any, text: str, number: int = 0, **metadata: Any) -> Document:
    """Return one record: a store would name it at random, and names break ties."""
    return Document(text, metadata={UNIT: unit, **metadata}, id=f"{unit}/{number}")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Document], list[Document], Any]:
    """Draw a corpus, the same without one person, and that person's id.

    Everybody else has at least one record, so that a public number of groups stands.
    """
    text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
    ward = st.sampled_from(["3", "4"])
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, len(UNITS) - 1), text, ward),
            min_size=4,
            max_size=24,
        )
    )
    rows += [(n, "rash", "3") for n in range(len(UNITS))]
    own: dict[int, str] = {}
    gone = draw(st.sampled_from(UNITS))
    documents = [
        note(UNITS[unit], said, number, ward=own.setdefault(unit, ward))
        for number, (unit, said, ward) in enumerate(draw(st.permutations(rows)))
    ]
    return documents, without(documents, gone), gone


def stored(documents: Iterable[Document], **terms: Any) -> RetrievedGroups:
    """Read groups out of a vector store, with a salt that all tests share."""
    store = InMemoryVectorStore(EMBEDDING)
    store.add_documents(list(documents))
    return RetrievedGroups.from_vectorstore(
        store,
        salt=SALT,
        **{"unit_key": UNIT, "n_groups": 3, "docs_per_group": 2, **terms},
    )


def embedded(documents: Iterable[Document], **terms: Any) -> RetrievedGroups:
    """Make groups of vectors that are there already."""
    listed = list(documents)
    columns = {
        "text": [one.page_content for one in listed],
        "embedding": [counted(one.page_content) for one in listed],
        "ward": [one.metadata["ward"] for one in listed],
        UNIT: [str(one.metadata[UNIT]) for one in listed],
    }
    return RetrievedGroups.from_embeddings(
        columns,
        EMBEDDING,
        salt=SALT,
        **{"unit_key": UNIT, "n_groups": 3, "docs_per_group": 2, **terms},
    )


def saved(documents: Iterable[Document], **terms: Any) -> RetrievedGroups:
    """Save groups, and load them."""
    with tempfile.TemporaryDirectory() as folder:
        stored(documents, **terms).save(folder)
        return RetrievedGroups.load(folder, EMBEDDING)


def account(**terms: Any) -> PrivacyBudgetHandler:
    """Open an account in memory that pays for nearly exact votes."""
    given = {"epsilon": 1e7, "delta": 1e-6, "ledger": ":memory:"}
    if not {"queries", "accounting"} & set(terms):
        given["accounting"] = "renyi"
    return PrivacyBudgetHandler(**{**given, **terms})


def slots(groups: Any, asked: str = ASKED) -> Bits:
    """Return what each slot of a draw holds, slot by slot."""
    return [[one.page_content for one in slot] for slot in groups.draw(asked)]


def exact_vote(labels: Sequence[str], **terms: Any) -> VoteOutputParser:
    """Return a vote whose noise is too small to move a count."""
    return VoteOutputParser(labels=list(labels), noise_multiplier=0.05, **terms)


def votes(answer: Any) -> Counter[str]:
    """Return what the slots were taken to say, from an exact vote's public counts."""
    details = record(answer)["details"]
    bins = {**details["noisy_votes"]}
    bins |= {
        name: details[f"noisy_{name}"] for name in ("none", "unreadable", "failed")
    }
    return Counter({name: round(count) for name, count in bins.items() if round(count)})


def moved(one: Counter[str], other: Counter[str]) -> tuple[int, int]:
    """Return how many votes came, and how many went."""
    return (other - one).total(), (one - other).total()


def clinic(people: int = 40, told: str = "cough") -> list[Document]:
    """Return one record each, which answers the question, and names its person."""
    return [
        note(f"p{n}", f"{told} of person <{n}>", ward=str(n % 2)) for n in range(people)
    ]


def group_prompts(model: Any) -> list[str]:
    """Return the prompts that a model was asked with records."""
    return [prompt for prompt in model.prompts if "<" in prompt]


async def whole_stream(pieces: Any) -> Any:
    """Add up a stream, of whichever kind."""
    total: Any = None
    if hasattr(pieces, "__aiter__"):
        async for piece in pieces:
            total = piece if total is None else total + piece
    else:
        for piece in pieces:
            total = piece if total is None else total + piece
    return total


async def last_event(events: Any) -> Any:
    """Return the output of the whole run from a stream of events."""
    ends = [one async for one in events if one["event"] == "on_chain_end"]
    return next(one["data"]["output"] for one in ends if not one["parent_ids"])


async def batched(chain: Any, asked: Any, **config: Any) -> Any:
    return (await chain.abatch([asked], **config))[0]


async def in_thread(call: Callable[..., Any], *arguments: Any, **config: Any) -> Any:
    return await asyncio.to_thread(call, *arguments, **config)


ASK: dict[str, Callable[..., Any]] = {
    "invoke": lambda chain, asked, **c: in_thread(chain.invoke, asked, **c),
    "ainvoke": lambda chain, asked, **c: chain.ainvoke(asked, **c),
    "batch": lambda chain, asked, **c: in_thread(lambda: chain.batch([asked], **c)[0]),
    "abatch": batched,
    "stream": lambda chain, asked, **c: whole_stream(chain.stream(asked, **c)),
    "astream": lambda chain, asked, **c: whole_stream(chain.astream(asked, **c)),
    "events": lambda chain, asked, **c: last_event(chain.astream_events(asked, **c)),
}
"""LangChain's ways to ask, each awaited."""
