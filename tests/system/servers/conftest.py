"""What the server tests share: a provider behind a recording proxy, and its clients.

Ordinary test runs ask a scripted provider. `--vllm FOLDER` names the virtual
environment of a real vLLM (`make test-servers` makes one); then the same tests run on
it too, and so do those that need a real server (`test_vllm_*.py`), which are not
collected otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI, OpenAI
from support.fakes import notes
from support.servers.provider_clients import client_of
from support.servers.recording_proxy import RecordingProxy
from support.servers.scripted_provider import scripted_provider
from support.servers.scripted_tokens import Letters
from support.servers.vllm_server import LAST_LINES, VLLMServer

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.few_shot import OpenAICompatibleNextToken
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.sealed import SealedModel

Make = Callable[..., Any]

NEEDS_SERVER = "test_vllm_"
"""How the names of files begin whose tests need a real server."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vllm", metavar="FOLDER", help="a virtual environment with vLLM")


def _environment(config: pytest.Config) -> str | None:
    # Not registered where this file is read after the command line.
    return config.getoption("--vllm", default=None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what needs a real server where none is named."""
    needs_server = collection_path.name.startswith(NEEDS_SERVER)
    return True if needs_server and not _environment(config) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "upstream" in metafunc.fixturenames:
        kinds = ["vllm"] * bool(_environment(metafunc.config))
        if not metafunc.module.__name__.startswith(NEEDS_SERVER):
            kinds.insert(0, "scripted")
        metafunc.parametrize("upstream", kinds, indirect=True)


@pytest.fixture(autouse=True)
def not_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains don't ask whether the model is there: calls are counted here."""
    monkeypatch.setattr(SealedModel, "is_probed", True)


@pytest.fixture(scope="session")
def vllm_of_the_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VLLMServer]:
    """A vLLM that is started when it is wanted, and stopped at the end."""
    environment = Path(str(_environment(request.config)))
    server = VLLMServer(environment, tmp_path_factory.mktemp("vllm"))
    request.config.stash[LOG] = server.log
    yield server
    server.stop()


@pytest.fixture
def vllm(vllm_of_the_session: VLLMServer) -> VLLMServer:
    """A running vLLM, also where the last test has killed it."""
    vllm_of_the_session.start()
    return vllm_of_the_session


LOG = pytest.StashKey[Path]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    log = item.config.stash.get(LOG, None)
    if report.failed and log is not None and log.exists():
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        report.sections.append((f"the end of {log}", "\n".join(last)))
    return report


@pytest.fixture
def upstream(request: pytest.FixtureRequest) -> Any:
    """What answers: a scripted provider, or the address of a real one."""
    if request.param == "scripted":
        return scripted_provider
    return request.getfixturevalue("vllm").url


@pytest.fixture
def proxy(upstream: Any) -> Iterator[RecordingProxy]:
    """A recording proxy before each of the providers."""
    with RecordingProxy(upstream) as running:
        yield running


@pytest.fixture
async def make_model(proxy: RecordingProxy) -> AsyncIterator[Make]:
    """Make a client of the proxy: `make_model(ChatOpenAI, temperature=0)`."""
    async with contextlib.AsyncExitStack() as stack:

        def make(kind: type[ChatOpenAI | OpenAI] = ChatOpenAI, **changes: Any) -> Any:
            return client_of(stack, kind, proxy.url, changes)

        yield make


@pytest.fixture
async def next_token() -> AsyncIterator[Make]:
    """Put a next-token model before a server: `next_token(TokenServer(), k=v)`.

    It returns the model and the recording proxy between the two. What `llm` holds goes
    to the completions client.
    """
    async with contextlib.AsyncExitStack() as stack:

        def make(
            server: Any, llm: dict[str, Any] | None = None, **changes: Any
        ) -> tuple[OpenAICompatibleNextToken, RecordingProxy]:
            proxy = stack.enter_context(RecordingProxy(server))
            client = client_of(stack, OpenAI, proxy.url, llm or {})
            tokenizer = changes.pop("tokenizer", None) or Letters()
            return OpenAICompatibleNextToken(client, tokenizer, **changes), proxy

        yield make


@pytest.fixture(scope="session")
def few_groups() -> RetrievedGroups:
    """30 groups: as many requests a query, few enough for two cores.

    Of 20 units on average each: one without any would be asked without records.
    """
    return RetrievedGroups.from_documents(
        notes(600), HashingEmbeddings(), unit_key="patient", n_groups=30
    )
