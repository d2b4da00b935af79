"""Classify tickets by private examples: in-context learning without a leak.

Each group gets a fresh random sample of labeled tickets as exemplars and votes; the
vote is released under noise. Sampling makes it cheaper, so that an account lasts for
many tickets. Async and batched, as a service would do it.
"""

import asyncio

from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.offline import OfflineChatModel

TICKETS = {
    "delivery": [
        "The parcel never came to my door",
        "The courier left the parcel in the rain",
        "My parcel is late again",
    ],
    "billing": [
        "I was charged twice on my invoice",
        "The invoice shows a wrong amount",
        "Please refund the amount you charged",
    ],
}


def main() -> None:
    documents = [
        Document(
            texts[i % len(texts)], metadata={"customer": f"{label}-{i}", "label": label}
        )
        for label, texts in TICKETS.items()
        for i in range(400)
    ]
    groups = SampledGroups.from_documents(
        documents,
        unit_key="customer",
        n_groups=20,
        sampling_rate=SampledGroups.rate_for(len(documents), 20, 4),
    )
    chain = DPChain(
        groups=groups,
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels=list(TICKETS)),
        prompt=PromptTemplate.from_template(
            "Labels: delivery, billing\n\n{context}\n\nText: {question}\nLabel:"
        ),
        document_prompt=PromptTemplate.from_template(
            "Text: {page_content}\nLabel: {label}"
        ),
        document_separator="\n\n",
        budget=PrivacyBudgetHandler(
            epsilon=3, delta=1e-4, queries=100, ledger=":memory:", account="tickets"
        ),
    )
    new = [
        "My parcel came late and wet",
        "Why was I charged this amount?",
        "The courier lost it",
        "There is an error on the invoice",
    ]
    for text, answer in zip(new, asyncio.run(chain.abatch(new)), strict=True):
        account = answer.response_metadata["privacy"]["account"]
        print(
            f"{text:36} {answer.content:10} "
            f"epsilon spent: {account['epsilon_spent']:.2f} of {account['epsilon']:g}"
        )


if __name__ == "__main__":
    main()
