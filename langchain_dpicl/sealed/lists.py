"""Several prompts in one call of a completion model, and whose answer is whose.

A list puts different people's records into one call, so it is a choice
(`DPChain.prompts_per_call`), and an answer counts only where it is known whose it is.

* Servers of OpenAI's completions API number their choices. langchain-openai ignores
  the numbers and cuts the reply up by place: a server that leaves out one prompt's
  choice moves every later answer to another group. So its clients are called here, and
  the numbers must be exactly those of the prompts.
* Other models return one list of candidates a prompt, in the prompts' order: that is
  LangChain's contract, and taken on trust. A short or uneven reply breaks it.

A reply that fails raises; its prompts are then asked one by one.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - `_generate` and the invocation's parameters are what providers
# implement; nothing public makes a call that no observer sees.
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import LLM, BaseChatModel, BaseLLM
from langchain_core.outputs import Generation

from langchain_dpicl.common.slots import FAILED, Slot, answered
from langchain_dpicl.errors import GroupCallError, InvalidParameterError


def require_lists(model: BaseChatModel | BaseLLM) -> None:
    """Refuse a model whose answers to a list can't be had, or can't be matched."""
    if not isinstance(model, BaseLLM) or isinstance(model, LLM):
        reason = "takes one prompt a call"
    elif getattr(model, "streaming", False):
        reason = "streams one prompt at a time: set streaming=False of the model"
    elif hasattr(model, "create_llm_result") and not _is_numbered(model):
        reason = (
            "may match a server's answers to prompts by their place alone: use "
            "langchain_openai.OpenAI or AzureOpenAI"
        )
    else:
        return
    raise InvalidParameterError(
        f"prompts_per_call must be 1: {type(model).__name__} {reason}."
    )


def arguments(
    method: Callable[..., Any], stop: list[str] | None, bound: dict[str, Any]
) -> dict[str, Any]:
    """Return what LangChain gives a model's method beside the prompt, in its way.

    It passes everything by name, and a run manager only to methods that name one. So a
    model that works in an ordinary call works in a group call.

    Example:
        >>> arguments(lambda messages, stop=None, **more: None, ["."], {"seed": 3})
        {'stop': ['.'], 'seed': 3}
    """
    takes_one = "run_manager" in inspect.signature(method).parameters
    return {"stop": stop, **({"run_manager": None} if takes_one else {}), **bound}


def ask_list(
    model: Any, texts: list[str], stop: list[str] | None, bound: dict[str, Any]
) -> list[Slot]:
    """Ask for several answers in one call; return one slot a prompt, in their order.

    Answers that can't be matched to the prompts raise; so does whatever the model
    raises.
    """
    if not _is_numbered(model):
        given = arguments(model._generate, stop, bound)
        found = model._generate(texts, **given)
        return _in_order(found.generations, len(texts))
    params = _params(model, texts, stop, bound)
    return _by_number(model.client.create(prompt=texts, **params), len(texts), params)


async def aask_list(
    model: Any, texts: list[str], stop: list[str] | None, bound: dict[str, Any]
) -> list[Slot]:
    """Ask for several answers in one call; see `ask_list`."""
    if not _is_numbered(model):
        given = arguments(model._agenerate, stop, bound)
        found = await model._agenerate(texts, **given)
        return _in_order(found.generations, len(texts))
    params = _params(model, texts, stop, bound)
    reply = await model.async_client.create(prompt=texts, **params)
    return _by_number(reply, len(texts), params)


def _is_numbered(model: Any) -> bool:
    """Whether langchain-openai itself makes the model's calls, so that we can too."""
    # A model of theirs has imported it; for any other model nothing needs to.
    module = sys.modules.get("langchain_openai.llms.base")
    family: Any = getattr(module, "BaseOpenAI", None)
    return (
        family is not None
        and isinstance(model, family)
        and type(model)._generate is family._generate
        and type(model)._agenerate is family._agenerate
    )


def _params(
    model: Any, texts: list[str], stop: list[str] | None, bound: dict[str, Any]
) -> dict[str, Any]:
    params = {**model._invocation_params, **bound}
    # It writes the stop words and the length into them; the cut lists are ours.
    model.get_sub_prompts(params, texts, stop)
    return params


def _by_number(reply: Any, prompts: int, params: dict[str, Any]) -> list[Slot]:
    """Return the first candidate of each prompt, by the numbers of the choices."""
    body = reply if isinstance(reply, dict) else reply.model_dump(warnings=False)
    candidates = params.get("n") or 1
    numbered = {choice["index"]: choice for choice in body["choices"]}
    # `True` is 1 to a dictionary, and so is 1.0.
    if (
        any(type(number) is not int for number in numbered)
        or len(numbered) != len(body["choices"])
        or numbered.keys() != set(range(prompts * candidates))
    ):
        raise GroupCallError("The answers are not numbered as the prompts are.")
    firsts = (numbered[prompt * candidates]["text"] for prompt in range(prompts))
    return [answered(text) if isinstance(text, str) else FAILED for text in firsts]


def _in_order(generations: Sequence[Sequence[Generation]], prompts: int) -> list[Slot]:
    """Return the first candidate of each prompt, by the order of the prompts."""
    counts = {len(candidates) for candidates in generations}
    if len(generations) != prompts or len(counts) != 1 or 0 in counts:
        raise GroupCallError("The model returned another number of answers.")
    return [answered(candidates[0].text) for candidates in generations]
