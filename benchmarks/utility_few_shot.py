"""Labels of test texts by private votes and by examples that were released once.

Labeled texts (TREC, AG News, DBpedia) are the private records. A private vote asks ten
groups of four sampled records for each question; examples are written once by
`DPFewShotGenerator` and shown in every prompt, with a contrast and without. Beside them
stand no examples, examples that were written without records, the same vote without
noise, and records as examples, which is *not private*. A heart table is
done likewise with `GDPTable` and `LDPTable`.

A second table counts texts of the right label by decoder, at equal epsilon: of so many
records a label, judged by a classifier of words that has learned from the other ones.

The next-token model is an argument: `--next-token transformers:PATH`, or `MODEL@URL` of
a vLLM server. Without it no example is written, and the other rows are printed.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate

from benchmarks.common import (
    Grader,
    Options,
    account,
    lines_of,
    percent,
    table,
)
from langchain_dpicl import (
    DPChain,
    SampledGroups,
    VoteOutputParser,
    few_shot,
    tabular,
)

DELTA, EPSILONS = 1e-6, (1.0, 3.0, 8.0)
GROUPS, SHOTS, WRITERS = 10, 4, 80
RECORDS, PEOPLE = 835, 40
"""Records that texts are written from, of all labels together, and people of a text."""

DECODERS: dict[str, dict[str, Any]] = {
    "clipped": {"decoder": few_shot.Clipped()},
    "clipped, temperature 0.7": {"decoder": few_shot.Clipped(temperature=0.7)},
    "gaussian": {"decoder": few_shot.Sampling(floor=2.0), "n_groups": WRITERS},
    "gaussian, contrast 0.5": {
        "decoder": few_shot.Sampling(floor=2.0, contrast=0.5),
        "n_groups": WRITERS,
    },
}
TASKS = {
    # What the next-token model is told, tokens of an example, records of a group.
    "trec": ("Given an answer type, write a question of that type.", 15, 1),
    "agnews": ("Given a topic, write a news item.", 20, 2),
    "dbpedia": ("Given a category, write a description of something in it.", 20, 2),
}
PROMPT = ChatPromptTemplate.from_template(
    "Classify the text. Answer with one of the labels and nothing else.\n"
    "Labels: {labels}\n\n{context}\n\nText: {question}\nLabel:"
)
EXAMPLE = PromptTemplate.from_template("Text: {page_content}\nLabel: {label}")

Example = dict[str, str]


def next_token(name: str) -> few_shot.NextTokenModel:
    """Return the next-token model that is named."""
    from langchain_openai import OpenAI
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if name.startswith("transformers:"):
        kinds, path = (AutoModelForCausalLM, AutoTokenizer), name.partition(":")[2]
        return few_shot.TransformersNextToken(*(k.from_pretrained(path) for k in kinds))
    model, _, url = name.partition("@")
    tokenizer = AutoTokenizer.from_pretrained(model)
    llm = OpenAI(model=model, base_url=url)
    return few_shot.OpenAICompatibleNextToken(llm, tokenizer)


def accuracy(
    model: Any, labels: list[str], shown: Sequence[Any], asked: list[Example]
) -> float:
    """Return the share of texts that a model labels rightly by these examples."""
    context = "\n\n".join(
        EXAMPLE.format(page_content=one["text"], label=one["label"]) for one in shown
    )
    grader, chain = Grader(labels), PROMPT | model
    given = {"labels": ", ".join(labels), "context": context}
    said = (chain.invoke({**given, "question": one["text"]}).text for one in asked)
    hits = [
        grader.option(text) == one["label"]
        for text, one in zip(said, asked, strict=True)
    ]
    return sum(hits) / len(hits)


def voted(
    model: Any,
    labels: list[str],
    records: list[Example],
    asked: list[Example],
    epsilon: float,
) -> float:
    """Return the share of right private votes, of all questions on one account."""
    documents = [
        Document(one["text"], metadata={"id": n, "label": one["label"]})
        for n, one in enumerate(records)
    ]
    rate = SampledGroups.rate_for(len(records), n_groups=GROUPS, people_per_group=SHOTS)
    chain = DPChain(
        groups=SampledGroups.from_documents(
            documents, unit_key="id", n_groups=GROUPS, sampling_rate=rate
        ),
        model=model,
        parser=VoteOutputParser(labels=labels),
        prompt=PROMPT.partial(labels=", ".join(labels)),
        document_prompt=EXAMPLE,
        budget=account(epsilon, DELTA, queries=len(asked)),
    )
    hits = [str(chain.invoke(one["text"]).text) == one["label"] for one in asked]
    return sum(hits) / len(hits)


def texts(name: str, options: Options, model: Any, runs: int, count: int) -> None:
    """Show the accuracies on one set of labeled texts."""
    assert options.data is not None
    folder = options.data / name
    train, test = (
        [{"text": x["text"], "label": x["label_text"]} for x in lines_of(path)]
        for path in (folder / "train.jsonl.gz", folder / "test.jsonl.gz")
    )
    labels = sorted({one["label"] for one in train})
    told, tokens, each = TASKS[name]
    writer = next_token(options.next_token) if options.next_token else None

    def written(epsilon: float | None, contrast: float = 0.0) -> Any:
        assert writer is not None
        generator = few_shot.DPFewShotGenerator(
            *(writer, told, labels),
            n_groups=WRITERS,
            records_per_group=each,
            max_tokens=tokens,
            decoder=few_shot.Sampling(floor=2.0, contrast=contrast),
            budget=None if epsilon is None else account(epsilon, DELTA),
        )
        private = None if epsilon is None else train
        return generator.generate(private, progress=False)

    def records() -> list[Example]:
        by_label = ([x for x in train if x["label"] == label] for label in labels)
        return [random.choice(some) for some in by_label]

    found: dict[str, list[float]] = {}
    for _ in range(runs):
        asked = random.sample(test, count)
        ways: dict[str, Callable[[], Any]] = {
            "zero-shot": list,
            "records as examples (not private)": records,
        }
        if writer is not None:
            ways["examples without records"] = partial(written, None)
            for e in EPSILONS:
                ways[f"DP examples, ε = {e:g}"] = partial(written, e)
                ways[f"with contrast 0.5, ε = {e:g}"] = partial(written, e, 0.5)
        for what, make in ways.items():
            found.setdefault(what, []).append(accuracy(model, labels, make(), asked))
        for epsilon in (1e4, *EPSILONS):
            at = "without noise (not private)" if epsilon == 1e4 else f"ε = {epsilon:g}"
            shares = found.setdefault(f"vote of {GROUPS} groups, {at}", [])
            shares.append(voted(model, labels, train, asked, epsilon))
    title = f"{name}: {count} questions, {len(labels)} labels, {runs} runs"
    cells = [(what, percent(shares)) for what, shares in found.items()]
    table(title, ("labels by", "accuracy, %"), cells)


def classifier(records: list[Example]) -> Callable[[str], str]:
    """Return what tells a text's label by its words: naive Bayes."""
    sizes = Counter(one["label"] for one in records)
    seen: dict[str, Counter[str]] = {label: Counter() for label in sizes}

    def words(text: str) -> set[str]:
        return set(re.findall(r"[a-z]+", text.lower()))

    for one in records:
        seen[one["label"]].update(words(one["text"]))

    def label_of(text: str) -> str:
        def score(label: str) -> float:
            counts = (seen[label][word] + 0.5 for word in words(text))
            shares = (math.log(count / (sizes[label] + 1)) for count in counts)
            return math.log(sizes[label]) + sum(shares)

        return max(sizes, key=score)

    return label_of


def decoders(name: str, options: Options, epsilon: float = 4.0) -> None:
    """Show the share of texts with the right label, by decoder."""
    assert options.data is not None
    assert options.next_token is not None
    writer, (told, tokens, _) = next_token(options.next_token), TASKS[name]
    records = [
        {"text": x["text"], "label": x["label_text"]}
        for x in lines_of(options.data / name / "train.jsonl.gz")
    ]
    random.shuffle(records)
    labels = sorted({one["label"] for one in records})
    each = RECORDS // len(labels)
    by_label = [[x for x in records if x["label"] == label] for label in labels]
    private = [x for some in by_label for x in some[:each]]
    label_of = classifier([x for some in by_label for x in some[each:]])
    per_label, cells = max(1, each // PEOPLE), []
    for what, terms in DECODERS.items():
        for given in (None, private):
            generator = few_shot.DPFewShotGenerator(
                *(writer, told, dict.fromkeys(labels, each)),
                max_tokens=tokens,
                budget=account(epsilon, DELTA),
                **terms,
            )
            texts = generator.generate(given, per_label, progress=False)
            right = sum(label_of(one["text"]) == one["label"] for one in texts)
            which = f"{what}, {'without records' if given is None else 'records'}"
            share = 100 * right / (per_label * len(labels))
            cells.append((which, f"{share:.0f}"))
    title = f"{name}: {per_label * len(labels)} texts of {each} records a label"
    table(f"{title}, {tokens} tokens, ε = {epsilon:g}", ("by", "right, %"), cells)


def heart() -> tabular.TableSchema:
    """Return the table's public schema: five features that are known to matter."""
    words = {
        "Sex": "F M",
        "ChestPainType": "TA ATA NAP ASY",
        "ExerciseAngina": "N Y",
        "ST_Slope": "Up Flat Down",
        "label": "0 1",
    }
    columns = [
        tabular.CategoricalColumn(name=n, values=v.split()) for n, v in words.items()
    ]
    age = tabular.NumericColumn(name="Age", kind="integer", lower=20, upper=90, bins=4)
    return tabular.TableSchema(label="label", columns=[age, *columns])


def rows(data: Path, model: Any, runs: int) -> None:
    """Show the accuracies on the heart table, by eight released rows."""
    schema = heart()
    train, test = (
        [
            {**{n: row[n] for n in schema.names}, "Age": int(row["Age"])}
            for row in lines_of(data / "tab_heart" / f"{part}.csv.gz")
        ]
        for part in ("train", "test")
    )

    def shown(row: dict[str, Any]) -> Example:
        return {"text": schema.text(row), "label": schema.label_text(row["label"])}

    asked, labels = [shown(row) for row in test], list(schema.labels)

    def mean(make: Callable[[], Any]) -> str:
        return percent([accuracy(model, labels, make(), asked) for _ in range(runs)])

    def released(kind: Any, epsilon: float) -> Any:
        budget = account(epsilon, DELTA)
        told = {"participation": "public"} if kind is tabular.LDPTable else {}
        return kind(train, schema, budget=budget, **told).examples(8)

    real = "8 rows as they are (not private)"
    some = [shown(row) for row in train]
    found = [("zero-shot", mean(list)), (real, mean(lambda: random.sample(some, 8)))]
    for kind in (tabular.GDPTable, tabular.LDPTable):
        for epsilon in EPSILONS:
            name = f"8 rows of a {kind.__name__}, ε = {epsilon:g}"
            found.append((name, mean(partial(released, kind, epsilon))))
    title = f"heart: {len(asked)} test rows, {runs} runs"
    table(title, ("labels by", "accuracy, %"), found)


def run(options: Options) -> None:
    """Print a table for each data set."""
    assert options.data is not None
    model = options.chat()
    runs, count = (1, 20) if options.quick else (3, 100)
    rows(options.data, model, runs)
    for name in ("trec",) if options.quick else TASKS:
        texts(name, options, model, runs, count)
        if options.next_token:
            decoders(name, options)
