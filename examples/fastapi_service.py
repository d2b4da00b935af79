"""A question service over private records: FastAPI, many workers, one ledger.

    pip install . fastapi gunicorn uvicorn-worker httpx     # in this repository
    python examples/fastapi_service.py                      # shows itself, and ends
    dpicl ledger create --ledger sqlite:///service.db       # once, never at a start
    gunicorn --chdir examples fastapi_service:app -k uvicorn_worker.UvicornWorker -w 4

Every worker opens the same account, so that all of them together stay within it:

    DPICL_LEDGER   sqlite:///service.db, or postgresql+psycopg://user@host/db for
                   several hosts
    DPICL_ANSWERS  how many answers the account pays for
    DPICL_INDEX    a folder written by `RetrievedGroups.save`; without it each worker
                   makes an index of its own of the generated clinic
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from langchain_core.messages import AIMessage
from pydantic import BaseModel, Field

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.demo import clinic, questions
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

STATUS = {
    # Not 429, which asks to try again later: a budget does not grow back.
    BudgetExhaustedError: 402,
    InvalidParameterError: 422,
    NoBudgetError: 503,
    LedgerError: 503,
    DPError: 502,
}


def open_groups() -> RetrievedGroups:
    if folder := os.environ.get("DPICL_INDEX"):
        return RetrievedGroups.load(folder, HashingEmbeddings(), follow=True)
    return RetrievedGroups.from_documents(
        clinic(),
        HashingEmbeddings(),
        unit_key="patient_id",
        n_groups=100,
        docs_per_group=8,
    )


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # A service whose ledger is lost must not begin a new one.
    url = os.environ.get("DPICL_LEDGER", "sqlite:///service.db")
    ledger = Ledger(url, create=False)
    app.state.budget = PrivacyBudgetHandler(
        epsilon=8,
        delta=1e-6,
        queries=int(os.environ.get("DPICL_ANSWERS", "20")),
        ledger=ledger,
        account="service",
    )
    app.state.chain = DPChain(
        groups=open_groups(),
        model=OfflineChatModel(),  # yours
        parser=VoteOutputParser(labels="draft"),
        budget=app.state.budget,
        max_concurrency=25,
    )
    yield
    ledger.dispose()


app = FastAPI(title="Private answers", lifespan=lifespan)


class Question(BaseModel):
    """What is asked; anybody may read it."""

    question: str = Field(max_length=2000)


class Answer(BaseModel):
    """What is answered, and its public record."""

    answer: str
    privacy: dict[str, Any]


@app.exception_handler(DPError)
async def refuse(_: Request, error: DPError) -> JSONResponse:
    # No error of the library holds private text, so all of them may be shown.
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    detail = {"error": type(error).__name__, "detail": str(error)}
    return JSONResponse(detail, status)


@app.post("/ask")
async def ask(asked: Question) -> Answer:
    message = await app.state.chain.ainvoke(asked.question)
    return Answer(answer=message.text, privacy=message.response_metadata["privacy"])


@app.post("/ask/stream")
async def ask_stream(asked: Question) -> StreamingResponse:
    chunks = app.state.chain.astream(asked.question)
    # The first piece comes after the release: what is refused is an HTTP status, and
    # no broken stream.
    first = await anext(chunks)
    return StreamingResponse(events(first, chunks), media_type="text/event-stream")


@app.get("/budget")
async def budget() -> dict[str, Any]:
    return await asyncio.to_thread(app.state.budget.public_state)


@app.get("/health")
async def health() -> dict[str, Any]:
    # Reads the ledger, and fails as LedgerError where it can't.
    can_answer = await asyncio.to_thread(app.state.budget.can_afford)
    return {"worker": os.getpid(), "can_answer": can_answer}


async def events(
    first: AIMessage, chunks: AsyncIterator[AIMessage]
) -> AsyncIterator[str]:
    """Write a stream as server-sent events: words, then the record.

    A client that hangs up has paid. Its answer is stored, and asking again is free.
    """
    yield sent(first)
    async for chunk in chunks:
        yield sent(chunk)


def sent(chunk: AIMessage) -> str:
    told = chunk.response_metadata
    found: list[tuple[str, Any]] = [("token", chunk.text)] if chunk.text else []
    found += [("record", told["privacy"])] if "privacy" in told else []
    return "".join(f"event: {e}\ndata: {json.dumps(data)}\n\n" for e, data in found)


async def demonstrate() -> None:
    asked = [question.text for question in questions()[:12]]
    transport = httpx.ASGITransport(app)
    async with (
        lifespan(app),
        httpx.AsyncClient(transport=transport, base_url="http://demo") as client,
    ):
        print("POST /ask/stream")
        body = {"question": asked[0]}
        async with client.stream("POST", "/ask/stream", json=body) as stream:
            async for line in stream.aiter_lines():
                if line:
                    print("   ", shorten(line, 80, placeholder=" ..."))

        print(f"POST /ask, {len(asked)} clients at once, the first with that question")
        found = await asyncio.gather(
            *(client.post("/ask", json={"question": text}) for text in asked)
        )
        for question, response in zip(asked, found, strict=True):
            said = response.json()
            status = said["privacy"]["status"] if response.is_success else "refused"
            print(f"    {response.status_code} {status:8} {question}")
            text = said["answer"] if response.is_success else said["detail"]
            print(" " * 16, shorten(text, 68, placeholder=" ..."))

        state = (await client.get("/budget")).json()
        print("GET /budget")
        for name in ("epsilon", "epsilon_spent", "queries", "queries_spent"):
            print(f"    {name:13} {state[name]:.4g}")
        print("GET /health")
        print("   ", (await client.get("/health")).text)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        os.environ["DPICL_LEDGER"] = f"sqlite:///{folder}/service.db"
        Ledger(os.environ["DPICL_LEDGER"]).dispose()
        os.environ["DPICL_ANSWERS"] = "8"
        asyncio.run(demonstrate())
