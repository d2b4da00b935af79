"""Workers of the erasure tests: services that follow an index, erasers that die."""

from __future__ import annotations

import multiprocessing
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

PERSON, MARK, ENDED = "p-erased", "zebra", "it ended"
DOCUMENTS = [
    *(note(f"p-{i}", f"rash, said number {i}") for i in range(150)),
    *(note(PERSON, f"rash on a {MARK}, visit {i}") for i in range(2)),
]


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


def serve(say: Callable[..., None], path: str, url: str) -> None:
    """Answer a question for each of two files; say what the models were shown.

    By a chain that follows the index, and by its twin that does not.
    """
    chains = {
        follow: chain_over(path, follow=follow).model_copy(update={"cache": False})
        for follow in (True, False)
    }
    budget = PrivacyBudgetHandler(epsilon=30, delta=1e-6, queries=9, ledger=url)
    number, parent = 0, multiprocessing.parent_process()
    while number < 2 and parent is not None and parent.is_alive():
        if not Path(f"{path}.ask-{number}").exists():
            time.sleep(0.01)
            continue
        for follow, chain in chains.items():
            before = len(chain.model.asked)
            answer = chain.invoke(QUESTION, {"callbacks": [budget]})
            asked = chain.model.asked[before:]
            say(
                number=number,
                follows=follow,
                status=answer.response_metadata["privacy"]["status"],
                sees=any(MARK in text for text in asked),
                others=sum("said number" in text for text in asked),
            )
        number += 1


def stop_at(
    say: Callable[..., None],
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
                say(what=f"{side} {name}")
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
    say(what=ENDED)
