"""The service of the examples, really served: two processes, one PostgreSQL ledger."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from support.postgres import PostgresServer

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.demo import clinic, questions
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.offline import HashingEmbeddings

SERVICE = Path(__file__).parents[2] / "examples" / "fastapi_service.py"
SERVE = [sys.executable, "-m", "uvicorn", "fastapi_service:app"]
SERVE += ["--app-dir", str(SERVICE.parent)]
ANSWERS, CLIENTS = 12, 20
START_SECONDS = 120

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    found = PostgresServer()
    yield found
    found.close()


@pytest.fixture
def ledger_url(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not in pytest's folder: a socket's path has room for 107 characters.
    with tempfile.TemporaryDirectory(prefix="dpicl-") as found:
        yield Path(found)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    groups = RetrievedGroups.from_documents(
        clinic(800),
        HashingEmbeddings(),
        unit_key="patient_id",
        n_groups=80,
        docs_per_group=6,
    )
    path = tmp_path_factory.mktemp("service") / "index"
    groups.save(path)
    return str(path)


@pytest.fixture
def workers(
    folder: Path, index: str, ledger_url: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes of the service, each on a socket of its own."""
    Ledger(ledger_url).dispose()
    environment = {
        **os.environ,
        "DPICL_LEDGER": ledger_url,
        "DPICL_ANSWERS": str(ANSWERS),
        "DPICL_INDEX": index,
    }
    started = []
    for number in range(2):
        with (folder / f"said-{number}.txt").open("wb") as said:
            started.append(
                subprocess.Popen(
                    [*SERVE, "--uds", folder / str(number)],
                    env=environment,
                    stdout=said,
                    stderr=said,
                )
            )
    yield started
    for worker in started:
        worker.kill()
        worker.wait()


@pytest.fixture
async def clients(
    workers: list[subprocess.Popen[bytes]], folder: Path
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of each worker, ready to answer."""
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.AsyncHTTPTransport(uds=str(folder / str(number))),
                    base_url="http://service",
                    timeout=START_SECONDS,
                )
            )
            for number in range(len(workers))
        ]
        for number, (client, worker) in enumerate(zip(found, workers, strict=True)):
            healthy = await started(client, worker, folder / f"said-{number}.txt")
            assert healthy == {"worker": worker.pid, "can_answer": True}
        yield found


def distinct_questions() -> list[str]:
    # A question without drafted options is answered in public, and charges nothing.
    asked = [one.text for one in questions() if one.kind == "population"]
    told = asked[: CLIENTS // 2]
    return [*told, *(text.removesuffix("?") for text in told)]


async def test_workers_share_one_budget_and_a_killed_one_loses_nothing(
    workers: list[subprocess.Popen[bytes]],
    clients: list[httpx.AsyncClient],
    folder: Path,
    ledger_url: str,
) -> None:
    asked = distinct_questions()
    found = await asyncio.gather(
        *(ask(clients[i % 2], text) for i, text in enumerate(asked))
    )
    given = [answer.json()["privacy"] for answer in found if answer.is_success]
    refused = [answer for answer in found if not answer.is_success]
    assert (len(given), len(refused)) == (ANSWERS, CLIENTS - ANSWERS)
    # Nothing was given for nothing, and no charge paid for two answers.
    assert sorted(one["charge"] for one in given) == list(range(1, ANSWERS + 1))
    assert {one["status"] for one in given} <= {"released", "abstained"}
    for answer in refused:
        assert answer.status_code == 402
        assert answer.json()["error"] == "BudgetExhaustedError"

    workers[0].send_signal(signal.SIGKILL)
    workers[0].wait()
    with pytest.raises(httpx.TransportError):
        await clients[0].get("/health")
    state = (await clients[1].get("/budget")).json()
    assert state["queries_spent"] == ANSWERS
    assert state["epsilon_spent"] <= state["epsilon"]
    assert (await clients[1].get("/health")).json()["can_answer"] is False
    # What the dead worker has sold, the living one still gives.
    for text, answer in zip(asked, found, strict=True):
        again = await ask(clients[1], text)
        if answer.is_success and answer.json()["privacy"]["status"] == "released":
            assert again.json()["answer"] == answer.json()["answer"]
            assert again.json()["privacy"]["status"] == "cached"
        else:
            assert again.status_code == 402
            streamed = await clients[1].post("/ask/stream", json={"question": text})
            assert streamed.status_code == 402
    blank = await ask(clients[1], " ")
    assert (blank.status_code, blank.json()["error"]) == (
        422,
        "InvalidParameterError",
    )

    workers[1].send_signal(signal.SIGTERM)
    workers[1].wait(START_SECONDS)
    assert "Traceback" not in (folder / "said-1.txt").read_text()
    assert charges(ledger_url) == ANSWERS


async def test_a_worker_killed_in_the_middle_of_answers_keeps_what_it_was_charged(
    workers: list[subprocess.Popen[bytes]],
    clients: list[httpx.AsyncClient],
    ledger_url: str,
) -> None:
    asked = distinct_questions()
    doomed = [asyncio.create_task(ask(clients[0], text)) for text in asked[:6]]
    while not await asyncio.to_thread(charges, ledger_url):
        """The first charge is on its way."""
    workers[0].send_signal(signal.SIGKILL)
    workers[0].wait()
    found = await asyncio.gather(*doomed, return_exceptions=True)
    found += await asyncio.gather(*(ask(clients[1], text) for text in asked))
    given = [
        answer.json()["privacy"]["charge"]
        for answer in found
        if isinstance(answer, httpx.Response) and answer.is_success
    ]
    # Some answers died after their charge. None was given twice on one, or without.
    paid = [charge for charge in given if charge is not None]
    assert len(set(paid)) == len(paid) <= ANSWERS
    assert charges(ledger_url) == ANSWERS


async def test_who_hangs_up_has_paid_and_a_closed_account_says_so(
    folder: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPICL_LEDGER", f"sqlite:///{folder}/service.db")
    Ledger(f"sqlite:///{folder}/service.db").dispose()
    monkeypatch.setenv("DPICL_ANSWERS", "1")
    monkeypatch.setenv("DPICL_INDEX", index)
    service = SimpleNamespace(**runpy.run_path(str(SERVICE)))
    app, question = service.app, questions()[0].text
    transport = httpx.ASGITransport(app)
    async with (
        service.lifespan(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        chunks = app.state.chain.astream(question)
        sent = service.events(await anext(chunks), chunks)
        assert '"charge": 1' in await anext(sent)
        await sent.aclose()
        # One answer was paid for, and it is there for who asks again.
        assert (await client.get("/budget")).json()["queries_spent"] == 1
        answer = (await ask(client, question)).json()
        assert answer["privacy"]["status"] == "cached"
        assert "cough" in answer["answer"]
        refused = await client.post("/ask/stream", json={"question": "Which drug?"})
        assert refused.status_code == 402

        budget = app.state.budget
        budget.ledger.close_account(budget.account)
        closed = await ask(client, "Which drug do patients with asthma take most?")
        assert (closed.status_code, closed.json()["error"]) == (503, "LedgerError")
        assert (await client.get("/health")).json()["can_answer"] is False


def charges(url: str) -> int:
    """Return how many charges there are, if they are as they were written."""
    ledger = Ledger(url)
    try:
        ledger.verify("service")
        return ledger.state("service").used
    finally:
        ledger.dispose()


async def ask(client: httpx.AsyncClient, question: str) -> httpx.Response:
    return await client.post("/ask", json={"question": question})


async def started(
    client: httpx.AsyncClient, worker: subprocess.Popen[bytes], said: Path
) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return (await client.get("/health")).json()
        except httpx.TransportError:
            require_living(worker, deadline, said)
            await asyncio.sleep(0.05)


def require_living(
    worker: subprocess.Popen[bytes], deadline: float, said: Path
) -> None:
    assert worker.poll() is None, said.read_text()
    assert time.monotonic() < deadline, said.read_text()
