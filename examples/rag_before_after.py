"""An existing RAG chain, made private in two ways.

Before: the chain as LangChain's own tutorial builds it. Its answers show the records.
After, (a): only its retriever is another one. (b): a `DPChain` stands where retriever,
prompt and model stood. Its answers show what the records have in common.
"""

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPRetriever,
    ESAOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

POPULATION = "Which side effect do patients on lisinopril report most?"
PERSON = "What is the phone number of Theo Ivanova?"

PROMPT = ChatPromptTemplate.from_template(
    "You are an assistant for question-answering tasks. Use the following pieces of "
    "retrieved context to answer the question. If you don't know the answer, just say "
    "that you don't know. Use three sentences maximum and keep the answer concise.\n"
    "Question: {question}\nContext: {context}\nAnswer:"
)

# What (a) may retrieve: sentences that anybody could write who has seen no record. The
# one that most groups' answers are nearest to comes out (ESA by vote).
DRUGS = "Lisinopril", "Metformin", "Topiramate", "Salbutamol", "Sertraline", "Naproxen"
EFFECTS = "cough", "nausea", "tingling", "tremor", "insomnia", "heartburn", "headache"
SENTENCES = [
    f"{drug}: the side effect that patients report most is {effect}."
    for drug in DRUGS
    for effect in EFFECTS
]


def format_docs(docs: list[Document]) -> str:
    return "\n\n".join(doc.page_content for doc in docs)


def rag_chain(retriever: BaseRetriever, model: OfflineChatModel) -> Runnable[str, str]:
    return (
        {"context": retriever | format_docs, "question": RunnablePassthrough()}
        | PROMPT
        | model
        | StrOutputParser()
    )


def main() -> None:
    embedding, model = HashingEmbeddings(), OfflineChatModel()

    store = InMemoryVectorStore.from_documents(clinic(), embedding)
    before = rag_chain(store.as_retriever(search_kwargs={"k": 6}), model)

    # New: say whose record is whose, and what all answers together may give away.
    groups = RetrievedGroups.from_vectorstore(
        store, unit_key="patient_id", n_groups=100, docs_per_group=8
    )
    budget = PrivacyBudgetHandler(
        epsilon=8,
        delta=1e-6,
        queries=4,  # (a) and (b) release the same kind of thing: noisy votes
        ledger=":memory:",  # "sqlite:///clinic.db" remembers
        account="clinic",
    )

    # (a) The chain stays. Its documents are the public sentences that the records bear
    # out; for a question about one person there are none, and the model does not know.
    sentences = DPChain(
        groups=groups,
        model=model,
        parser=ESAOutputParser(embedding=embedding, candidates=SENTENCES),
        budget=budget,
    )
    new_retriever = rag_chain(DPRetriever(chain=sentences), model)

    # (b) No list of sentences: the model lists possible answers from the question
    # alone, and the groups choose. About one person it has none to list.
    dp_chain = (
        DPChain(
            groups=groups,
            model=model,
            parser=VoteOutputParser(labels="draft"),
            budget=budget,
        )
        | StrOutputParser()
    )

    for question in (POPULATION, PERSON):
        print(question)
        print("  before:           ", before.invoke(question))
        print("  (a) new retriever:", new_retriever.invoke(question))
        print("  (b) DPChain:      ", dp_chain.invoke(question))
        print(
            f"  epsilon spent:     {budget.spent().epsilon:.2f} of {budget.epsilon:g}\n"
        )

    print("What was paid for is given again for nothing; other questions are charged:")
    try:
        for drug in ("lisinopril", "metformin", "sertraline"):
            question = f"Which side effect do patients on {drug} report most?"
            print("  answered:", dp_chain.invoke(question))
    except BudgetExhaustedError as error:
        print("  refused:", error)


if __name__ == "__main__":
    main()
