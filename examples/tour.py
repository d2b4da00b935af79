# %% [markdown]
"""A tour of langchain-dpicl: from records to private answers, one cell after the other.

Open it as a notebook (VS Code and Jupytext read the `# %%` marks) or run it:
`python examples/tour.py`. It needs no key and no network; the model is an offline
stand-in that extracts sentences.
"""

# %% [markdown]
# ## 1. Records, and whose they are
# A generated clinic. Each note says, in its metadata, whose it is. All notes of one
# patient are one *unit*, and the unit is what is protected.

# %%
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPRetriever,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.budget import forecast
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

print("1. Records, and whose they are")
notes = clinic()
print(f"{len(notes)} notes; one of them, of {notes[0].metadata['patient_id']}:")
print(notes[0].page_content)

# %% [markdown]
# ## 2. Groups
# A keyed hash of the patient's id decides which of 100 groups they are in. Each group
# will be asked by itself, so one patient can change one answer of a hundred at most. A
# note takes part where it is near enough to the question (`score_threshold`).

# %%
print("\n2. Groups")
groups = RetrievedGroups.from_documents(
    notes,
    HashingEmbeddings(),
    unit_key="patient_id",
    n_groups=100,
    docs_per_group=8,
    score_threshold=0.3,
)
print(
    f"{groups.n_units} patients in {groups.n_groups} groups; neighbors: "
    f"{groups.relation.value}"
)

# %% [markdown]
# ## 3. What will a budget buy?
# Known before any record is read: the noise on the count of groups that choose an
# option. The option must lead the next one by about six times that.

# %%
print("\n3. What will a budget buy?")
parser = VoteOutputParser(labels="draft")  # the model lists the options
for queries in (5, 20, 80):
    plan = forecast(
        parser.charge(),
        epsilon=8,
        delta=1e-6,
        queries=queries,
        groups=groups.n_groups,
    )
    print(f"{queries:2} answers: a count of {plan.groups} is off by {plan.noise:.1f}")

# %% [markdown]
# ## 4. Open an account and ask
# The account is a promise to every patient, over all answers together. The model lists
# possible answers from the question alone. The account is charged, durably. Then each
# group chooses one of the options, and their noisy counts decide.

# %%
print("\n4. Open an account and ask")
folder = TemporaryDirectory()
ledger = f"sqlite:///{Path(folder.name, 'tour.db')}"
budget = PrivacyBudgetHandler(
    epsilon=8, delta=1e-6, queries=5, ledger=ledger, account="tour"
)
model = OfflineChatModel()
chain = DPChain(groups=groups, model=model, parser=parser, budget=budget)

answer = chain.invoke("Which side effect do patients on lisinopril report most?")
print(answer.content)

# %% [markdown]
# ## 5. Every answer has a public record
# It says what was released, by what, and what it cost. All of it may be logged.

# %%
print("\n5. Every answer has a public record")
record = answer.response_metadata["privacy"]
for name in ("status", "mechanism", "details", "parameters", "unit_key", "charge"):
    print(f"{name:10} {record[name]}")
account = record["account"]
print(f"epsilon    {account['epsilon_spent']:.2f} of {account['epsilon']:g}")

# %% [markdown]
# ## 6. What one patient alone knows does not come out
# The model lists no options for a phone number: no group is asked, and nothing is
# charged. Options that it makes up would get few votes, and none would come out. Either
# way the model's own answer is given, labeled so.

# %%
print("\n6. What one patient alone knows does not come out")
answer = chain.invoke("What is the phone number of Theo Ivanova?")
print(answer.content, "-", answer.response_metadata["privacy"]["status"])

# %% [markdown]
# ## 7. Streaming
# The words that a `KSAPTROutputParser` releases are put into a sentence, which comes
# token by token. A vote's label comes in one piece. The last piece has the record.

# %%
print("\n7. Streaming")
for chunk in chain.stream("Which drug do patients with asthma take most?"):
    print(chunk.content, end="|" if chunk.content else "")
print()

# %% [markdown]
# ## 8. What is spent, and the end
# What was paid for is given again for nothing, also when the account is spent.

# %%
print("\n8. What is spent, and the end")
spent, left = budget.spent(), budget.remaining()
print(f"epsilon {spent.epsilon:.2f} of {budget.epsilon:g}, {left.queries} answers left")
questions = [
    "Which hobby do patients with depression mention most?",
    "Which sport do patients with arthritis prefer most?",
    "Which trigger do patients with migraine name most?",
    "Which drug do patients with diabetes take most?",
    "Which drug do patients with asthma take most?",
]
for question in questions:
    try:
        answer = chain.invoke(question)
        status, text = answer.response_metadata["privacy"]["status"], answer.content
    except BudgetExhaustedError as error:
        status, text = "refused", str(error).split(";")[0]
    print(f"{status:8} {question} {text}")

# %% [markdown]
# ## 9. An account that does not end
# With `scope="unit"` each patient has a balance of five answers, and a question charges
# those whose notes are near enough to it. Others pay nothing.

# %%
print("\n9. An account that does not end")
lasting = PrivacyBudgetHandler(
    epsilon=8, delta=1e-6, queries=5, scope="unit", ledger=ledger, account="lasting"
)
service = DPChain(groups=groups, model=model, parser=parser, budget=lasting)
for drug in ("lisinopril", "metformin", "topiramate", "naproxen", "sertraline"):
    said = service.invoke(f"Which side effect do patients on {drug} report most?")
    print(f"{drug:10} {said.content}")
print("goes on:  ", lasting.can_afford())

# %% [markdown]
# ## 10. The operator's view
# Who holds the ledger sees every charge, can check that none was tampered with, and can
# read what each patient has spent, under keyed hashes of the ids. *That is private.*

# %%
print("\n10. The operator's view")
for entry in budget.ledger.entries("tour"):
    print(f"entry {entry['number']}: {entry['kind']}, digest {entry['digest'][:8]}...")
print(f"intact: {budget.ledger.verify()} entries, {budget.spent().queries} charges")
balances = lasting.ledger.unit_balances("lasting")
for answers, patients in sorted(Counter(one.spent.loss for one in balances).items()):
    took = "answer" if answers == 1 else "answers"
    print(f"{patients} patients took part in {answers} {took} of account 'lasting'")

# %% [markdown]
# ## 11. A patient leaves
# Their notes are gone at once. Their balance stays, so that coming back renews nothing.

# %%
print("\n11. A patient leaves")
gone = [note for note in notes if note.metadata["patient_id"] == "P0001"]
print("notes removed:", groups.delete_unit("P0001"), "- patients:", groups.n_units)
groups.add_documents(gone)
print("and back again:", groups.n_units)

# %% [markdown]
# ## 12. In a chain that wants a retriever
# `DPRetriever` hands out what was released, as documents. None of them is a record.

# %%
print("\n12. In a chain that wants a retriever")
retriever = DPRetriever(chain=service)
for document in retriever.invoke("Which drug do patients with diabetes take most?"):
    print(document.metadata["rank"], document.page_content)

# %% [markdown]
# ## 13. A conversation
# Groups see one question and their records, nothing of the conversation. So the public
# model first makes a follow-up question stand alone. That costs no budget.

# %%
print("\n13. A conversation")
rewrite = ChatPromptTemplate.from_messages(
    [
        ("system", "Rewrite the user's last question as one standalone question."),
        ("placeholder", "{chat_history}"),
        ("human", "{question}"),
    ]
)
condenser = rewrite | model | StrOutputParser()
turn = {
    "chat_history": [
        HumanMessage("Which side effect do patients on lisinopril report most?"),
        AIMessage("cough"),
    ],
    "question": "And on salbutamol?",
}
print(turn["question"], "->", condenser.invoke(turn))
print((condenser | service).invoke(turn).content)

# %%
folder.cleanup()
