"""An existing RAG chain, and the same chain made private.

The ordinary chain is what LangChain's own tutorials build. Three things change: the
retriever becomes a group source, the prompt and the model go into a `DPChain`, and the
call names a budget.
"""

from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.prompts import GROUP_PROMPT

PERSON = "What is the phone number of Theo Ivanova?"
POPULATION = "Which side effect do patients on lisinopril report most?"


def main() -> None:
    documents = clinic()
    embedding, model = HashingEmbeddings(), OfflineChatModel()

    # Before: whoever asks, gets the records.
    store = InMemoryVectorStore.from_documents(documents, embedding)
    before = (
        {
            "context": store.as_retriever(search_kwargs={"k": 8}),
            "question": RunnablePassthrough(),
        }
        | GROUP_PROMPT
        | model
        | StrOutputParser()
    )

    # After: whoever asks, gets what the records have in common.
    groups = RetrievedGroups.from_documents(
        documents, embedding, unit_key="patient_id", n_groups=100, docs_per_group=8
    )
    after = (
        DPChain(groups=groups, model=model, parser=KSAPTROutputParser(k=1))
        | StrOutputParser()
    )
    budget = PrivacyBudgetHandler(
        epsilon=4, delta=1e-6, queries=3, ledger=":memory:", account="example"
    )

    for question in (POPULATION, PERSON):
        print(question)
        print("  before:", before.invoke(question))
        print("  after: ", after.invoke(question, config={"callbacks": [budget]}))
        print(f"  epsilon spent: {budget.spent():.2f} of {budget.epsilon:g}")

    print("and once more, and once too often:")
    print("  after: ", after.invoke(POPULATION, config={"callbacks": [budget]}))
    try:
        after.invoke(POPULATION, config={"callbacks": [budget]})
    except BudgetExhaustedError as error:
        print("  refused:", error)


if __name__ == "__main__":
    main()
