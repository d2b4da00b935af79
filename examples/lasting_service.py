"""A service that does not run dry: a whole-corpus account beside a per-unit account.

The same sixteen questions go to two chains over the same notes. Both accounts promise
epsilon = 8 and have the noise of five answers. One charges everybody for each answer,
and ends after five. The other charges the patients whose notes could take part, and
goes on; who has spent five answers takes no part any more. Asked a second time, the
questions are answered from the ledger for nothing.
"""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.demo import clinic, questions
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

ANSWERS = 5


def main() -> None:
    asked = [question for question in questions() if question.kind == "population"]
    groups = RetrievedGroups.from_documents(
        clinic(),
        HashingEmbeddings(),
        unit_key="patient_id",
        n_groups=100,
        docs_per_group=8,
        score_threshold=0.3,
    )
    with TemporaryDirectory() as folder:
        ledger = f"sqlite:///{Path(folder, 'service.db')}"
        for scope in ("corpus", "unit"):
            budget = PrivacyBudgetHandler(
                epsilon=8,
                delta=1e-6,
                queries=ANSWERS,
                scope=scope,
                ledger=ledger,
                account=f"by-{scope}",
            )
            chain = DPChain(
                groups=groups,
                model=OfflineChatModel(),
                parser=VoteOutputParser(labels="draft"),
                budget=budget,
            )
            for turn in ("first", "second"):
                outcomes: Counter[str] = Counter()
                for question in asked:
                    try:
                        answer = chain.invoke(question.text)
                    except BudgetExhaustedError:
                        outcomes["refused"] += 1
                        continue
                    outcomes[answer.response_metadata["privacy"]["status"]] += 1
                    outcomes["right"] += question.answered_by(str(answer.content))
                counts = ", ".join(f"{n} {name}" for name, n in outcomes.items())
                print(f"{scope:6}  {turn:6} time: {counts}")
            spent = budget.spent()
            print(
                f"        {spent.queries} answers charged for; nobody has spent more "
                f"than epsilon {spent.epsilon:.2f} of {budget.epsilon:g}"
            )
            budget.ledger.verify(budget.account)


if __name__ == "__main__":
    main()
