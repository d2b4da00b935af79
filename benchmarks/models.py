"""A small real model and encoder: what they say, by text and by likelihood.

`make test-models` gets SmolLM2-135M-Instruct and all-MiniLM-L6-v2 and runs this on two
cores in some ten minutes. The model is the smallest that one can talk to, so the
figures say what a reading gains with it, and nothing of larger ones. `--data FOLDER`
adds SST-2 and MedQuAD, which are not shipped; without it the demo's notes stand in.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate

from benchmarks.common import Options, account, lines_of, table
from langchain_dpicl import (
    DPChain,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    few_shot,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.likelihoods import NextTokenLLM
from langchain_dpicl.offline import HashingEmbeddings

DELTA, EPSILON = 1e-6, 8.0
QUESTIONS, GROUPS, SHOTS, TEXTS = 24, 4, 4, 3
PROMPT = ChatPromptTemplate.from_template("{context}\n\nText: {question}\nLabel:")
EXAMPLE = PromptTemplate.from_template("Text: {page_content}\nLabel: {label}")

Example = dict[str, str]


@contextmanager
def served(weights: Path) -> Iterator[str]:
    """Serve the model as OpenAI does, by transformers' own server; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve"]
    command += [str(weights), "--host", "127.0.0.1", "--port", str(port)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)  # noqa: S603 - our own command
    try:
        for _ in range(300):
            time.sleep(1)
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                break
            except OSError:
                if process.poll() is not None:
                    raise
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def quickstart(weights: Path, encoder: Embeddings) -> None:
    """Ask the demo's clinic as the quickstart does, through ChatOpenAI."""
    from langchain_openai import ChatOpenAI

    groups = RetrievedGroups.from_documents(
        clinic()[:400],
        encoder,
        unit_key="patient_id",
        n_groups=16,
        docs_per_group=4,
    )
    question = "Which side effect do patients on lisinopril report most?"
    with served(weights / "smollm2") as url:
        model = ChatOpenAI(
            model=str(weights / "smollm2"),
            base_url=url,
            api_key="none",  # type: ignore[arg-type]
            temperature=0,
            max_tokens=12,
        )
        rows = []
        for labels in (["cough", "rash", "fatigue"], "draft"):
            chain = DPChain(
                groups=groups,
                model=model.bind(max_tokens=60) if labels == "draft" else model,
                parser=VoteOutputParser(labels=labels),
                budget=account(8, DELTA, queries=1),
                max_concurrency=2,
            )
            began = time.perf_counter()
            answer = chain.invoke(question)
            record = answer.response_metadata["privacy"]
            took = time.perf_counter() - began
            rows.append(
                (
                    str(labels),
                    record["status"],
                    answer.text[:60],
                    f"{record['calls']}",
                    f"{took / record['calls']:.2f} s",
                )
            )
    names = ("labels", "status", "answer", "calls", "a call")
    table(f"The clinic, 16 groups, through ChatOpenAI: {question}", names, rows)


def notes() -> tuple[list[Example], list[Example]]:
    """Return the demo's notes, labeled by the condition that they tell of."""
    text = resources.files("langchain_dpicl.demo").joinpath("visit_notes.jsonl")
    read = [json.loads(line) for line in text.read_text("utf-8").splitlines()]
    labels = {"migraine", "asthma", "depression"}
    found = [
        {"text": one["text"], "label": one["facts"]["condition"]}
        for one in read
        if one["facts"]["condition"] in labels
    ]
    random.Random(1).shuffle(found)
    return found[QUESTIONS:], found[:QUESTIONS]


def labeled(folder: Path) -> tuple[list[Example], list[Example]]:
    """Return the private records of a data set, and the questions."""
    train, test = (
        [
            {"text": one["text"], "label": one["label_text"]}
            for one in lines_of(folder / part)
        ]
        for part in ("train.jsonl.gz", "test.jsonl.gz")
    )
    chosen = random.Random(1)
    return chosen.sample(train, 2000), chosen.sample(test, QUESTIONS)


def readings(
    name: str, model: NextTokenLLM, records: list[Example], asked: list[Example]
) -> None:
    """Show how many texts are labeled rightly, by text and by likelihood."""
    labels = sorted({one["label"] for one in records})
    documents = [
        Document(one["text"], metadata={"id": n, "label": one["label"]})
        for n, one in enumerate(records)
    ]
    rate = SampledGroups.rate_for(len(records), n_groups=GROUPS, people_per_group=SHOTS)
    groups = SampledGroups.from_documents(
        documents, unit_key="id", n_groups=GROUPS, sampling_rate=rate
    )
    rows, public = [], [one["text"] for one in records[:TEXTS]]
    for kind, given in (
        ("text", {"read": "text"}),
        ("likelihood, less without records", {"calibrate": "question"}),
        ("likelihood, less at N/A", {"calibrate": "public"}),
        (f"likelihood, less at {TEXTS} texts", {"calibrate": public}),
    ):
        terms: Any = {"read": "likelihood", **given}
        shares, hits, began = [], 0, time.perf_counter()
        for one in asked:
            chain = DPChain(
                groups=groups,
                model=model,
                parser=VoteOutputParser(labels=labels, **terms),
                prompt=PROMPT,
                document_prompt=EXAMPLE,
                budget=account(EPSILON, DELTA, queries=1),
            )
            answer = chain.invoke(one["text"])
            votes = answer.response_metadata["privacy"]["details"]["noisy_votes"]
            shares.append(votes[one["label"]] / GROUPS)
            hits += answer.text == one["label"]
        took = (time.perf_counter() - began) / len(asked)
        rows.append(
            (
                kind,
                f"{sum(shares) / len(shares):.0%}",
                f"{hits / len(asked):.0%}",
                f"{took:.1f} s",
            )
        )
    names = ("read by", "right groups (noisy)", "right votes", "a question")
    title = f"{name}: {len(asked)} texts, {GROUPS} groups, epsilon {EPSILON:g} each"
    table(title, names, rows)


def writing(model: Any, records: list[Example], instruction: str) -> None:
    """Show twelve tokens by each decoder, and what the library's part of them takes."""
    labels = sorted({one["label"] for one in records})[:1]
    own = [one for one in records if one["label"] in labels][:24]
    rows = []
    for decoder in ("gaussian", "clipped"):
        generator: Any = few_shot.DPFewShotGenerator(
            model,
            instruction,
            {labels[0]: len(own)},
            n_groups=12,
            records_per_group=1,
            max_tokens=12,
            decoder=decoder,
            budget=account(4, DELTA, queries=1),
        )
        began = time.perf_counter()
        (example,) = generator.generate(own, progress=False)
        took = time.perf_counter() - began
        rows.append((decoder, example["text"][:70], f"{took:.1f} s"))
    names = ("decoder", f"{labels[0]!r}, epsilon 4", "12 tokens")
    table(f"{len(own)} records: {instruction}", names, rows)


def recall(
    name: str,
    passages: Sequence[str],
    wanted: Sequence[tuple[str, set[int]]],
    encoder: Embeddings,
) -> None:
    """Show how often a right passage is among the first of an embedding."""
    rows = []
    for title, embedding in (
        ("all-MiniLM-L6-v2", encoder),
        ("hashing", HashingEmbeddings()),
    ):
        began = time.perf_counter()
        vectors = np.array(embedding.embed_documents(list(passages)))
        took = (time.perf_counter() - began) / len(passages)
        found = {1: 0, 10: 0}
        for question, right in wanted:
            near = vectors @ np.array(embedding.embed_query(question))
            order = np.argsort(-near, kind="stable").tolist()
            for most in found:
                found[most] += bool(right & set(order[:most]))
        shares = [f"{hits / len(wanted):.0%}" for hits in found.values()]
        rows.append((title, *shares, f"{1e3 * took:.1f} ms"))
    names = ("embedding", "among the first", "first ten", "a passage")
    table(f"{name}: {len(wanted)} questions, {len(passages)} passages", names, rows)


def clinic_passages() -> tuple[list[str], list[tuple[str, set[int]]]]:
    """Return the demo's notes, and which of them tell of each drug and effect."""
    passages = [document.page_content for document in clinic()[:300]]
    drugs = ("lisinopril", "metformin", "sertraline", "topiramate", "salbutamol")
    wanted = []
    for drug in drugs:
        right = {n for n, text in enumerate(passages) if drug in text.lower()}
        if right:
            wanted.append((f"What do patients who take {drug} report?", right))
    return passages, wanted


def medquad(folder: Path) -> tuple[list[str], list[tuple[str, set[int]]]]:
    """Return passages of MedQuAD, and questions that one of them answers."""
    corpus = lines_of(folder / "corpus.jsonl.gz")
    asked = random.Random(1).sample(lines_of(folder / "test.jsonl.gz"), 100)
    gold = {each for one in asked for each in one["gold_doc_ids"]}
    others = random.Random(2).sample(corpus, 300)
    kept = [one for one in corpus if one["doc_id"] in gold] + others
    places = {one["doc_id"]: n for n, one in enumerate(kept)}
    passages = [one["text"][:1000] for one in kept]
    return passages, [
        (one["question"], {places[each] for each in one["gold_doc_ids"]})
        for one in asked
    ]


def run(options: Options) -> None:
    """Print all tables."""
    import torch
    from langchain_huggingface import HuggingFaceEmbeddings
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert options.weights is not None
    weights, data = options.weights, options.data
    print(
        "Chat model: SmolLM2-135M-Instruct, 4-bit weights in 32-bit floats. Encoder: "
        f"all-MiniLM-L6-v2, 22 M parameters. {torch.get_num_threads()} threads."
    )
    encoder = HuggingFaceEmbeddings(model_name=str(weights / "minilm"))
    quickstart(weights, encoder)
    kinds, path = (AutoModelForCausalLM, AutoTokenizer), weights / "smollm2"
    tokens = few_shot.TransformersNextToken(
        *(kind.from_pretrained(path) for kind in kinds), name="SmolLM2-135M-Instruct"
    )
    model = NextTokenLLM(model=tokens, max_tokens=6).bind(stop=["\n"])
    records, asked = labeled(data / "sst2") if data else notes()
    asked = asked[:3] if options.quick else asked
    readings("SST-2" if data else "the demo's notes", model, records, asked)
    instruction = "Given a sentiment, write a line of a film review."
    if data is None:
        instruction = "Given a condition, write a note on a patient."
    writing(tokens, records, instruction)
    recall("the clinic", *clinic_passages(), encoder)
    if data:
        recall("MedQuAD", *medquad(data / "medquad_rag"), encoder)
