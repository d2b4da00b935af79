"""What anybody can see of a query from outside."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, every_way, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel

from langchain_dpicl import (
    DPChain,
    RetrievedGroups,
)
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.parsers import DPOutputParser


@pytest.fixture(params=sorted(PARSERS))
def parser(request: pytest.FixtureRequest) -> DPOutputParser:
    return PARSERS[request.param]()


class Watching(BaseCallbackHandler):
    """Records everything that any callback is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def _note(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append(repr((args, kwargs)))

    on_chain_start = on_chain_end = on_chain_error = _note
    on_llm_start = on_llm_end = on_llm_error = on_llm_new_token = _note
    on_chat_model_start = on_retriever_start = on_retriever_end = _note


async def test_canaries_reach_no_callback_event_or_record(
    parser: DPOutputParser, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [
        Document(
            f"Lisinopril gave a cough, canary-{i:04d}x.",
            metadata={"patient": f"canary-unit-{i}"},
        )
        for i in range(300)
    ]
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    bound, outer = Watching(), Watching()
    model = AsyncScriptedModel(
        reply=lambda text: reply(text) + (text[-300:] if "Lisinop" in text else ""),
        callbacks=[bound],
        verbose=True,
    )
    parser.__init__(  # type: ignore[misc]
        **{**parser.__dict__, "random": None, "budget": None}
    )
    chain = DPChain(groups=groups, model=model, parser=parser)
    budget = rich(queries=20)
    config: Any = {"callbacks": [budget, outer]}
    caplog.set_level(0)
    answers = await every_way(chain, budget)
    chain.invoke(QUESTION, config)
    await chain.ainvoke(QUESTION, config)
    events = [e async for e in chain.astream_events(QUESTION, config, version="v2")]
    with pytest.warns(LangChainDeprecationWarning, match="astream_log"):
        logs = [patch async for patch in chain.astream_log(QUESTION, config)]
    private = [text for text in model.asked if "canary-" in text]
    assert len(private) >= 60 * 8  # The canaries were there to be seen.
    for surface in (answers, events, logs, outer.seen, bound.seen, chain, caplog.text):
        assert "canary" not in repr(surface)
    assert outer.seen


def test_the_answer_is_a_message_with_no_usage_of_group_calls(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(
        groups=groups, model=OfflineChatModel(), parser=PARSERS["vote"](), budget=rich()
    )
    chain.invoke(QUESTION)  # The first one is asked alone, which is public.
    answer = chain.invoke(QUESTION)
    assert isinstance(answer, AIMessage)
    assert answer.usage_metadata is None
    assert set(answer.response_metadata) == {"privacy"}


def test_nothing_about_privacy_is_configurable_and_nothing_is_pickled(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(groups=groups, model=ScriptedModel(), parser=PARSERS["vote"]())
    assert chain.config_specs == []
    assert "unit-1" not in repr(chain)
    with pytest.raises(TypeError, match="private records"):
        __import__("pickle").dumps(chain)


def test_schemas_can_be_built(groups: RetrievedGroups) -> None:
    chain = DPChain(groups=groups, model=ScriptedModel(), parser=PARSERS["vote"]())
    assert chain.get_input_jsonschema()["title"]
    assert chain.get_output_jsonschema()["title"]
    assert chain.get_graph().nodes
