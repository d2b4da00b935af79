"""A service under gunicorn, whose chain was made, and asked, before the fork."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from langchain_dpicl.ledger import Ledger

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

ROOT = Path(__file__).parents[2]
ANSWERS = 6
QUESTION = "What did lisinopril give?"
APP = f"""
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from support.agent_parts import account, private_chain
from support.fakes import notes

from langchain_dpicl import DPError, RetrievedGroups
from langchain_dpicl.offline import HashingEmbeddings

groups = RetrievedGroups.from_documents(
    notes(), HashingEmbeddings(), unit_key="patient", n_groups=60
)
budget = account(queries={ANSWERS}, ledger="sqlite:///ledger.db")
chain = private_chain(groups, budget=budget, cache=True)
chain.invoke("{QUESTION}")  # Its threads and connections are there before the fork.
app = FastAPI()


@app.exception_handler(DPError)
async def refuse(_, error):
    return JSONResponse({{"error": type(error).__name__}}, 402)


@app.get("/ask")
async def ask(question: str):
    return (await chain.ainvoke(question)).response_metadata["privacy"]


@app.get("/stream")
async def stream(question: str):
    chunks = chain.astream(question)
    first = await anext(chunks)

    async def texts():
        yield first.text
        async for chunk in chunks:
            yield chunk.text

    return StreamingResponse(texts())
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served.py").write_text(APP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    worker = ["-k", "uvicorn_worker.UvicornWorker", "-w", "2", "--preload"]
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}{os.pathsep}{tmp_path}"
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "served:app", *worker, "-b", address],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    yield f"http://{address}"
    server.terminate()
    server.wait(60)


async def test_forked_workers_keep_one_budget_and_refuse_before_the_first_byte(
    url: str, tmp_path: Path
) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        first = await until_it_listens(client)
        assert first.json()["status"] == "cached"
        asked = [f"{QUESTION} {number % 12}" for number in range(36)]
        found = await asyncio.gather(*(ask(client, text) for text in asked))
        refused = Counter(one.status_code for one in found)[402]
        given = [one.json()["charge"] for one in found if one.is_success]
        # One answer was paid for before the fork.
        paid = [charge for charge in given if charge is not None]
        assert sorted(paid) == list(range(2, ANSWERS + 1))
        assert refused == 3 * (12 - len(paid))
        other = await client.get("/stream", params={"question": "Which drug?"})
        assert (other.status_code, other.json()["error"]) == (
            402,
            "BudgetExhaustedError",
        )
        again = await client.get("/stream", params={"question": QUESTION})
        assert (again.status_code, again.text) == (200, "cough")
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.verify("notes")
    assert ledger.state("notes").used == ANSWERS
    ledger.dispose()


async def ask(client: httpx.AsyncClient, question: str) -> httpx.Response:
    return await client.get("/ask", params={"question": question})


async def until_it_listens(client: httpx.AsyncClient) -> Any:
    until = time.monotonic() + 120
    while True:
        try:
            return await ask(client, QUESTION)
        except httpx.TransportError:
            assert time.monotonic() < until
            await asyncio.sleep(0.1)
