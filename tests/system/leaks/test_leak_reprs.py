"""No repr shows private text: every class of the package is on one of two lists.

A class that shows its fields (a dataclass, a named tuple) is listed as public here, or
must hide them. A new one is on no list, and fails until somebody has decided.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pprint import pformat
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.load import Serializable, dumpd
from pydantic import BaseModel
from support.leaks.canaries import look, marker

import langchain_dpicl
from langchain_dpicl import (
    DPChain,
    DPRetriever,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.agents import PrivacyBudgetMiddleware
from langchain_dpicl.common import frozen
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.few_shot.records import PrivateRecords, RecordFields
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.stores.checking import Hit, HitCheck
from langchain_dpicl.groups.stores.contract import StoredHit
from langchain_dpicl.ledger.base import UnitBalance
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.offline.reading import Reading
from langchain_dpicl.offline.vocabulary import Shown
from langchain_dpicl.sealed import Hidden
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPTable,
    TableSchema,
    TextRows,
)
from langchain_dpicl.tabular.rows.chunks import Chunk
from langchain_dpicl.tabular.text.card import Card
from langchain_dpicl.tabular.text.store import Readings
from langchain_dpicl.tabular.text.units import Part

PUBLIC = {
    # numbers, events and parameters
    "accounting.crosscheck": {"CrossCheck"},
    "accounting.discretization": {"Measure"},
    "accounting.events": {
        *(
            "Failure",
            "Exponential",
            "FixedSampleGaussianEvent",
            "Gaussian",
        ),
        *("Parallel", "Pure", "RenyiEvent", "ZCDPEvent"),
    },
    "accounting.filters": {"Cost", "PrivacyFilter"},
    "accounting.loss": {"_Composed"},
    "accounting.parts": {
        *("CurvePart", "Divergence"),
        *("ExponentialPart", "GaussianPart", "PurePart"),
    },
    "accounting.template": {"EventTemplate"},
    "audit.attacks": {"_Row"},
    "audit.bounds": {"Found", "Interval"},
    "audit.report": {"AuditReport"},  # Its kind and its verdict alone.
    "mechanisms.agreement": {"_AgreementTest"},
    "mechanisms.discrete_laplace": {"DiscreteLaplace"},
    "mechanisms.keyword_ptr": {"PTRNoise", "_GapTest"},
    "mechanisms.keyword_threshold": {"ThresholdNoise", "_WordTest"},
    "mechanisms.noise": {
        "ExponentialNoise",
        "GaussianNoise",
        "PureNoise",
        "VectorNoise",
    },
    "mechanisms.stages": {"Asked"},
    "mechanisms.ptr_curve": {"PTRCurve"},
    "mechanisms.release_curve": {"ReleaseCurve"},
    "mechanisms.rounded_gaussian": {"RoundedGaussian", "_Table"},
    "mechanisms.threshold_curve": {"ThresholdCurve", "WordLead"},
    "budget.bundle": {"Bundle"},
    "budget.charge": {"PaidCharge"},
    "budget.planning": {"_Plan"},
    "budget.pricing": {"_Share"},
    "chain.public_model": {"Use"},
    "budget.forecast": {"Cost", "Forecast"},
    "chain.cost_limit": {"CostLimit"},
    "groups.filtering": {"UnitFilter"},
    "groups.terms": {"RetrievalTerms", "SamplingTerms"},
    "groups.threshold": {"ChosenThreshold", "NoisyThreshold"},
    "few_shot.decoding": {"Sampling"},
    "few_shot.forecast": {"GenerationForecast", "LabelForecast"},
    "few_shot.records": {"RecordFields"},
    "few_shot.spec": {"ChargedNoise", "GenerationSpec", "OutputSpec"},
    "tabular.gdp.forecast": {"ColumnForecast", "TableForecast"},
    "tabular.gdp.terms": {"GDPTerms", "Quantity"},
    "tabular.ldp.forecast": {"ColumnForecast", "LDPForecast"},
    "tabular.ldp.terms": {"LDPTerms"},
    "tabular.row_text": {"RowText"},
    "tabular.schema.columns": {"CategoricalColumn", "TableColumn"},
    "tabular.schema.drafting": {"ColumnDraft", "SchemaDraft"},
    "tabular.schema.numeric": {"NumericColumn"},
    "tabular.schema.table": {"TableSchema"},
    "tabular.rows.wanted": {"WantedColumns"},
    "tabular.text.asking": {"Asking", "ReadingForecast"},
    "tabular.text.drafting": {"_Request"},
    "tabular.text.card": {"Card"},
    "tabular.text.fields": {"CategoryField", "NumberField"},
    # the question, the prompts' fixed text, the model's answer to the question alone
    "chain.gate": {"PublicFirstGate"},
    # what is said of made-up records, and of synthetic ones
    "chain.check_report": {"CheckReport", "CheckedQuestion", "Finding"},
    "chain.rehearsing": {"Rehearsal"},
    "chain.prompting": {"Prompting", "Question"},
    "chain.answers": {"AnswerStore"},
    "chain.stages": {"Stages"},
    "chain.steps": {"PreparedQuery", "Released", "Step", "Wording"},
    "groups.base": {"ThresholdRelease"},
    "groups.columns": {"ColumnNames"},
    "groups.drawing": {"PreparedQuestion"},
    "few_shot.prompting": {"FewShotPrompting"},
    "few_shot.public_calls": {"Vocabulary"},
    "few_shot.models.openai.probe": {"Abilities"},
    "few_shot.models.openai.wire": {"Failure"},
    # what was charged and released
    "few_shot.drafts": {"Draft", "Drafts"},
    "ledger.allowance": {"Allowance", "CallerLimit"},
    "ledger.base": {"AccountState", "AccountTerms", "Charge", "ChargeRecord", "Plan"},
    "ledger.corpus": {"CorpusState", "CorpusTerms"},
    "ledger.periods": {"Period"},
    "ledger.release_store": {"StoredRelease"},
    "ledger.sql.corpus_rows": {"Corpus"},
    "ledger.sql.rows": {"Account", "Last"},
    "common.outcome": {"Outcome"},
    "common.file_format": {"Kind"},
    "release.comparing": {"Comparison"},
    "release.owner": {"Owner"},
    "release.purchase": {"Waiting"},
    "release.record": {"RecordAccount", "ReleaseRecord"},
    "release.store": {"Entry", "ReleaseStore"},
    "report.account": {"AccountReport"},  # Its account and its verdict alone.
    "report.charges": {"ReleaseLine"},
    "report.curve": {"CurvePoint", "Household", "_Lost"},
    "report.given": {"Seen"},
    "report.proven": {"Proof"},
    "report.texts": {"Question"},
    "report.verifying": {"Verdict"},
    "tabular.gdp.consistency": {"Overlap"},
    "tabular.gdp.counts": {"Count", "CountTable", "Estimate", "MeasuredCounts"},
    "tabular.gdp.margins": {"SummedNoise"},
    "tabular.gdp.statistics": {"NoisyStatistics"},
    "tabular.gdp.facts": {"FactWriter"},
    "tabular.synthetic": {"SyntheticWriter"},
    "facts": {"FactsChain"},
    "tabular.ldp.mergeable": {"ReportTally"},
    "tabular.ldp.result": {"Collected", "Spending"},
    # rows behind `Hidden`
    "tabular.ldp.collecting": {"Rows"},
    # names of tables, columns and payload keys
    "groups.stores.pgvector.tables": {"Catalog", "Layout"},
    # chains and models, by their public fields; records, prompts and accounts hide
    "chain.dp_chain": {"DPChain"},
    "parsers.base": {"DPOutputParser", "PublicAnswer", "PublicInput"},
    "parsers.candidates": {"Candidates"},
    "parsers.esa": {"ESAOutputParser"},
    "parsers.lead": {"Verdict"},
    "parsers.keywords": {"KeywordOutputParser"},
    "parsers.ksa_joint": {"KSAJointOutputParser"},
    "parsers.ksa_ptr": {"KSAPTROutputParser"},
    "parsers.ksa_threshold": {"KSAThresholdOutputParser"},
    "parsers.reading.mentions": {"Form", "Options"},
    "parsers.staged": {"Said", "StagedOutputParser"},
    "parsers.vote": {"VoteOutputParser"},
    "retriever": {"DPRetriever"},
    "tools": {"DPTool"},
    "released.classifying": {"LabelOutputParser"},
    "rotation": {"Rotated"},
    "offline.chat_model": {"OfflineChatModel"},
    # the command line's parameters, and the demo's made-up clinic
    "cli.demo": {"Task"},
    "cli.demo_output": {"Answered"},
    "cli.plan": {"Method"},
    "demo.corpus": {"Patient", "Treatment", "_Name"},
    "demo.questions": {"DemoQuestion"},
    "demo.visit_notes": {"RecordedReader"},
    "demo.wording": {"Condition"},
    # the offline models' vocabulary and numbers
    "offline.background": {"Options", "Passages"},
    "offline.next_token": {"_Step"},
    "offline.ngrams": {"Places"},
}
"""Classes that show their fields, module by module: nothing in them is private."""

TEXT = marker("document", 3)
UNIT = marker("unit", 3)
DOCUMENT = Document(TEXT, metadata={"who": UNIT, "ward": marker("metadata", 3)}, id="a")
RECORD = {"text": TEXT, "label": "color", "who": UNIT}
DOCUMENTS = [
    Document(
        f"A {marker('document', n)}.",
        metadata={"who": marker("unit", n), "ward": marker("metadata", n)},
    )
    for n in range(60)
]
EMBEDDING = HashingEmbeddings()
SCHEMA = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse"]),
        CategoricalColumn(name="ill", values=["no", "yes"]),
    ],
)


class TalkativeModel(GenericFakeChatModel):
    """A model of somebody else's, which shows what it was last asked."""

    last: str = ""


def groups(documents: list[Document] = DOCUMENTS) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="who", n_groups=4
    )


def budget() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(epsilon=5, delta=1e-4, queries=3, ledger=":memory:")


def chain() -> DPChain:
    made = DPChain(
        groups=groups(),
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=budget(),
    )
    made.invoke("What is it?")
    return made


def foreign(documents: list[Document] = DOCUMENTS) -> DPChain:
    """Return a chain of a model that shows too much, and a tokenizer that does."""
    return DPChain(
        groups=groups(documents),
        model=TalkativeModel(messages=iter([]), last=TEXT).bind(stop=[TEXT]),
        parser=KSAPTROutputParser(k=2, tokenizer=TEXT.split),
    )


def parser() -> VoteOutputParser:
    made = VoteOutputParser(labels=["cough", "rash"], budget=budget())
    made.invoke([TEXT] * 30)
    return made


def index() -> ShardIndex:
    made = groups()._records.index  # type: ignore[attr-defined]
    assert isinstance(made, ShardIndex)
    return made


def eligible() -> Any:
    vector = np.ones((1, index().dimension), dtype=np.float32)
    return index().eligible(vector / np.linalg.norm(vector), -1.0)


def readings() -> Readings:
    made = Readings(Card.of(SCHEMA), None, "")
    made.keep(UNIT, {"job": TEXT})
    return made


def text_rows(documents: list[Document]) -> TextRows:
    model = TalkativeModel(messages=iter([]), last=TEXT).bind(stop=[TEXT])
    return TextRows(documents, SCHEMA, model, unit_key="who")


def checked_hit() -> Hit:
    check = HitCheck("A store", "who", lambda _: 0)
    return check.hits([StoredHit(DOCUMENT, 0.5, 0)])[0]


PRIVATE: dict[type, Callable[[], Any]] = {
    StoredHit: lambda: StoredHit(DOCUMENT, 0.5, 0),
    Hit: checked_hit,
    Slot: lambda: Slot(TEXT),
    Hidden: lambda: Hidden(TEXT),
    TokenPrompt: lambda: TokenPrompt(TEXT),
    PrivateRecords: lambda: PrivateRecords.read(
        [RECORD], ["color"], RecordFields("text", "label", "who"), choose_label=True
    ),
    Chunk: lambda: Chunk({"text": [TEXT]}, 1, [UNIT]),
    UnitBalance: lambda: UnitBalance(UNIT, (1, 0)),  # type: ignore[arg-type]
    Shown: lambda: Shown("", "", (TEXT,)),
    Reading: lambda: Reading("Which?", records=(TEXT,)),
    ShardIndex: index,
    RetrievedGroups: groups,
    SampledGroups: lambda: SampledGroups.from_documents(
        DOCUMENTS, unit_key="who", n_groups=4, sampling_rate=0.5
    ),
    DPChain: chain,
    DPRetriever: lambda: DPRetriever(chain=chain()),
    VoteOutputParser: parser,
    PrivacyBudgetHandler: lambda: chain().budget,
    GDPTable: lambda: GDPTable([{"job": TEXT}], SCHEMA, budget=budget()),
    LDPTable: lambda: LDPTable([{"job": TEXT}], SCHEMA, epsilon=1, budget=budget()),
    Part: lambda: Part(UNIT, 0, TEXT),
    Readings: readings,
    TextRows: lambda: text_rows(DOCUMENTS),
}
"""What holds records, answers, vectors or ids, or is made of what does."""

PARTS: dict[str, Callable[[], Any]] = {
    **{kind.__name__: make for kind, make in PRIVATE.items()},
    "tool": lambda: create_dp_tool(chain(), name="ask", description="Notes."),
    "records": lambda: groups()._records,
    "eligible": eligible,
    "query": lambda: chain()._query,
    "model": foreign,
    "middleware": lambda: PrivacyBudgetMiddleware(chain(), name="ask", description="N"),
}


def classes() -> Iterator[tuple[str, type]]:
    """Yield every class of the package, with its module."""
    for found in pkgutil.walk_packages(langchain_dpicl.__path__, "langchain_dpicl."):
        if ".migrations" in found.name or found.name.endswith("__main__"):
            continue
        for each in vars(importlib.import_module(found.name)).values():
            if (
                inspect.isclass(each)
                and each.__module__ == found.name
                and "[" not in each.__name__  # LangChain's own, with its types.
            ):
                yield found.name.removeprefix("langchain_dpicl."), each


def shows_fields(kind: type) -> bool:
    """Whether an instance that has a mark in every field shows it."""
    if issubclass(kind, BaseModel):
        return any(field.repr for field in kind.model_fields.values())
    if dataclasses.is_dataclass(kind) and not issubclass(kind, BaseException):
        made = object.__new__(kind)
        for field in dataclasses.fields(kind):
            object.__setattr__(made, field.name, TEXT)
        return bool(look(repr(made)).private)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return bool(look(repr(tuple.__new__(kind, [TEXT] * len(kind._fields)))).private)
    return False


def forms(made: Any) -> list[str]:
    traced = repr(dumpd(made)) if isinstance(made, Serializable) else ""
    return [
        *(repr(made), str(made), f"{made}", f"{made!r}", pformat(made)),
        *(repr([made]), repr({"a": (made,)}), traced),
    ]


def test_every_class_that_shows_its_fields_is_known_to_be_public() -> None:
    showing: dict[str, set[str]] = {}
    for module, kind in classes():
        if shows_fields(kind):
            showing.setdefault(module, set()).add(kind.__name__)
    assert showing == PUBLIC


@pytest.mark.parametrize("name", PARTS)
def test_what_holds_private_text_does_not_show_it(name: str) -> None:
    made = PARTS[name]()
    assert look(forms(made)).private == []


def test_a_repr_says_what_it_is() -> None:
    shown = repr(foreign())
    assert "groups=RetrievedGroups(retrieval='shard', unit_key='who', n_grou" in shown
    assert "model=TalkativeModel, parser=KSAPTROutputParser(tokenizer=split, k" in shown
    tool = create_dp_tool(chain(), name="ask", description="N")
    for made in (tool, DPRetriever(chain=chain()), PARTS["middleware"]()):
        assert "chain=DPChain(groups=RetrievedGroups(" in repr(made)
        assert "parser=VoteOutputParser(labels=('cough', 'rash'))" in repr(made)


def test_a_repr_depends_on_no_record() -> None:
    assert forms(foreign()) == forms(foreign(DOCUMENTS[1:]))
    assert forms(text_rows(DOCUMENTS)) == forms(text_rows(DOCUMENTS[1:]))
    for kind in (GDPTable, LDPTable):
        tables = [
            kind([{"job": "clerk"}] * n, SCHEMA, epsilon=1, budget=budget())
            for n in (1, 2)
        ]
        assert repr(tables[0]) == repr(tables[1])


def test_twin_what_is_not_shown_by_name_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Careless(VoteOutputParser):
        notes: tuple[str, ...]

    assert look(forms(Careless(labels=["a", "b"], notes=(TEXT,)))).private
    monkeypatch.setattr(frozen, "named", lambda value: value)
    assert look(forms(foreign())).private


def test_twin_a_plain_repr_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = type("Plain", (tuple,), {})
    for kind in (StoredHit, Hit, Reading):
        monkeypatch.setattr(kind, "__repr__", plain.__repr__)
        assert look(forms(PRIVATE[kind]())).private
