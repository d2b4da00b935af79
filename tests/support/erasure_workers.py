"""Workers of the erasure tests: services that follow an index, erasers that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.operate import erase
from support.fakes import ScriptedModel
from support.groups_fakes import QUESTION, WordEmbedding, note, retrieved
from support.nursery import Log

PERSON, MARK = "p-erased", "zebra"
DOCUMENTS = [
    *(note(f"p-{i}", f"rash, said number {i}") for i in range(150)),
    *(note(PERSON, f"rash on a {MARK}, visit {i}") for i in range(2)),
]


def warm_up() -> None:
    """Do once what every worker would have to do for itself."""
    VoteOutputParser(labels=["yes", "no"])


def saved(path: Path, **terms: Any) -> Path:
    """Save the corpus, so that everybody's records are in every draw."""
    retrieved(DOCUMENTS, n_groups=30, docs_per_group=20, **terms).save(path)
    return path


def chain_over(path: str | Path, *, follow: bool) -> DPChain:
    """Return a chain over a saved index, and a model that remembers its prompts."""
    return DPChain(
        groups=RetrievedGroups.load(path, WordEmbedding(), follow=follow),
        model=ScriptedModel(),
        parser=VoteOutputParser(labels=["yes", "no"]),
    )


def serve(
    log: Log, parent_lives: Callable[[], bool], *, path: str, url: str, follow: bool
) -> None:
    """Answer a question for each file that appears; say what the model was shown."""
    chain = chain_over(path, follow=follow).model_copy(update={"cache": False})
    budget = PrivacyBudgetHandler(epsilon=30, delta=1e-6, queries=9, ledger=url)
    log.write(serves=os.getpid())
    number = 0
    while parent_lives():
        if not Path(f"{path}.ask-{number}").exists():
            time.sleep(0.01)
            continue
        before = len(chain.model.asked)
        answer = chain.invoke(QUESTION, {"callbacks": [budget]})
        asked = chain.model.asked[before:]
        log.write(
            worker=os.getpid(),
            number=number,
            status=answer.response_metadata["privacy"]["status"],
            sees=any(MARK in text for text in asked),
            others=sum("said number" in text for text in asked),
        )
        number += 1


def stop_at(
    log: Log,
    parent_lives: Callable[[], bool],  # a worker's signature
    *,
    path: str,
    work: str,
    point: int,
    certificate: str | None = None,
) -> None:
    """Die by SIGKILL before or after a certain change of the disk; -1 lives."""
    reached = 0

    def watch(name: str) -> None:
        inner = getattr(os, name)

        def watched(*values: Any, **named: Any) -> Any:
            nonlocal reached
            for side in ("before", "after"):
                if side == "after":
                    done = inner(*values, **named)
                log.write(point=reached, what=f"{side} {name}")
                reached += 1
                if reached == point + 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            return done

        setattr(os, name, watched)

    for name in ("open", "fsync", "replace", "link", "unlink", "rmdir"):
        watch(name)
    if work == "erase":
        erase(PERSON, index=path, certificate=certificate)
    else:
        saved(Path(path))
