"""Sort support tickets by private examples: in-context learning without a leak.

The old tickets hold names, addresses and order numbers, and their labels are what makes
the model good at the new ones. Each of 20 groups gets a fresh random sample of them as
exemplars and casts one vote; the winner is released under noise. Sampling makes an
answer cheap, so that one account lasts for hundreds of tickets.
"""

import asyncio
import random
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import PromptTemplate, format_document
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.offline import OfflineChatModel

GROUPS, EXEMPLARS = 20, 16
PROBLEMS = {
    "shipping": [
        "the {item} never came, though tracking says the courier left it at my door",
        "the courier dropped the parcel with the {item} over the fence",
        "my parcel with the {item} has been at the depot for {n} days",
        "please send the {item} to my new address, the driver can't find {street}",
        "the {item} went to a neighbor on {street} instead of my door",
    ],
    "billing": [
        "you charged my card twice for the {item}",
        "the invoice for the {item} is {n} euros too high",
        "I still wait for my money back for the {item}",
        "my bank says that the payment for the {item} was declined, yet it is gone",
        "the discount of {n} percent is missing on the invoice",
    ],
    "quality": [
        "the {item} broke after {n} days, the handle came off",
        "the {item} arrived with a crack and won't switch on",
        "my {item} makes a burning smell and stops after {n} minutes",
        "a screw of the {item} is missing, and the lid does not close",
        "the {item} is scratched and leaks at the bottom",
    ],
    "account": [
        "I can't log in, the password link expires after {n} minutes",
        "please change the email of my profile, I no longer read that mailbox",
        "the app logs me out {n} times a day",
        "someone else's name stands in my profile, please delete it",
        "I never get the code by text message and can't log in",
    ],
}
ITEMS = "kettle", "lamp", "blender", "toaster", "fan", "radio", "drill", "heater"
STREETS = "Mill Lane", "Harbor Road", "Elm Street", "Castle Square", "Park Row"
NAMES = "Ada", "Bruno", "Carmen", "Dario", "Edith", "Farid", "Greta", "Hugo"
PROMPT = PromptTemplate.from_template(
    f"Labels: {', '.join(PROBLEMS)}\n\n{{context}}\n\nText: {{question}}\nLabel:"
)
EXEMPLAR = PromptTemplate.from_template("Text: {page_content}\nLabel: {label}")


def ticket(number: int, draws: random.Random) -> Document:
    label = draws.choice(list(PROBLEMS))
    said = draws.choice(PROBLEMS[label]).format(
        item=draws.choice(ITEMS), n=draws.randint(2, 30), street=draws.choice(STREETS)
    )
    order, name = draws.randint(10_000, 99_999), draws.choice(NAMES)
    text = f"{said[0].upper()}{said[1:]}. {name}, order {order}"
    return Document(text, metadata={"customer": f"C{number}", "label": label})


async def right(classifier: Runnable[Any, BaseMessage], asked: list[Document]) -> int:
    found = await classifier.abatch([document.page_content for document in asked])
    labels = [document.metadata["label"] for document in asked]
    return sum(a.content == label for a, label in zip(found, labels, strict=True))


async def main() -> None:
    draws = random.Random(7)  # noqa: S311 - for the invented tickets
    tickets = [ticket(number, draws) for number in range(2450)]
    old, new = tickets[:2400], tickets[2400:]
    model = OfflineChatModel()
    groups = SampledGroups.from_documents(
        old,
        unit_key="customer",
        n_groups=GROUPS,
        sampling_rate=SampledGroups.rate_for(len(old), GROUPS, EXEMPLARS),
    )
    budget = PrivacyBudgetHandler(
        epsilon=3, delta=1e-5, queries=400, ledger=":memory:", account="tickets"
    )
    private = DPChain(
        groups=groups,
        model=model,
        parser=VoteOutputParser(labels=list(PROBLEMS)),
        prompt=PROMPT,
        document_prompt=EXEMPLAR,
        budget=budget,
        cache=False,  # The first ticket is asked twice, over other exemplars.
    )

    print("A new ticket:", new[0].page_content)
    answer = await private.ainvoke(new[0].page_content)
    first = budget.spent().epsilon
    print(
        f"  label: {answer.content}; epsilon spent: {first:.2f} of {budget.epsilon:g}"
    )

    # The same model and prompt without examples, and with bare ones: the floor, and
    # what a chain gets that can be talked into repeating its examples.
    zero_shot = PROMPT.partial(context="") | model

    def with_bare_examples(text: str) -> PromptValue:
        shown = draws.sample(old, EXEMPLARS)
        context = "\n\n".join(format_document(one, EXEMPLAR) for one in shown)
        return PROMPT.invoke({"context": context, "question": text})

    bare = RunnableLambda(with_bare_examples) | model
    print(f"Right, of {len(new)} new tickets:")
    print(f"  no examples               {await right(zero_shot, new)}")
    print(f"  {EXEMPLARS} examples, not private  {await right(bare, new)}")
    print(f"  private examples          {await right(private, new)}")

    spent, left = budget.spent(), budget.remaining()
    answers = spent.queries or 0
    print(f"Cost of {answers} private answers:")
    print(f"  {answers * GROUPS} model calls, {GROUPS} an answer")
    print(
        f"  epsilon {spent.epsilon:.2f} of {budget.epsilon:g} at delta {budget.delta:g}"
    )
    print(f"  {left.queries} more answers can be paid for")


if __name__ == "__main__":
    asyncio.run(main())
