"""HTTP calls to a completions server: many at once, and no failure but a value.

What is to be asked is written as generators that yield lists of calls and receive
their replies (`Steps`); `Wire.flow` makes a flow of them. The order of questions, and
what is made of the answers, stand in one place.

Privacy:
    Calls hold private prompts, and so neither a call nor a failure says anything of
    itself in a repr. Threads and tasks run in copies of the caller's context: inside
    the sealed region they are sealed too. Of an exception only its kind and status
    code are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import openai
from langchain_openai import OpenAI

from langchain_dpicl.release.fan_out import fan_out
from langchain_dpicl.release.flow import Do, Flow
from langchain_dpicl.sealed import attempted

T = TypeVar("T")
MOST_CALLS = 32  # HTTP calls in flight at once unless a limit is given.
PUBLIC_TEXTS = (
    "Write a short sentence about the weather.\nSentence:",
    "  Two spaces, a tab\tand naïve café 北京 🙂 1234567890.",
)
"""What servers are asked to find out what they can do: nothing private."""
TRIES = 20
"""How often a prompt is asked whose answer came back mutilated, as
`questions.py` describes."""
LEAST_ASKED = 3  # Fewest tokens asked for: a mutilated answer names two at most.
UNSUPPORTED = (400, 422)  # Statuses of a server that does not take an argument.


@dataclass(frozen=True, repr=False)
class Call:
    """One HTTP request: a path below the API's address, and the body to post.

    A path that begins with `..` is beside the API's; a body of None makes it a GET.
    """

    path: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True)
class Failure:
    """Stands for a call that failed; it keeps nothing that the server said.

    `status` is None where there was no answer; `reason` is in words of ours.
    """

    status: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.status is None else f"status {self.status}"


Reply = Any  # The decoded JSON of an answer, or a `Failure`.
Steps = Generator[list[Call], list[Reply], T]


@dataclass(frozen=True, repr=False)
class Wire:
    """The SDK's clients of a completions model, with their keys, retries and time-outs.

    At most `most` HTTP calls are in flight at once.
    """

    llm: OpenAI
    most: int = MOST_CALLS
    _loops: dict[asyncio.AbstractEventLoop, Any] = field(
        default_factory=dict, init=False
    )

    def _async_root(self) -> Any:
        """Return the SDK's asynchronous client, with connections of this event loop.

        Connections that another loop has left behind, as `asyncio.run` does, would fail
        one private prompt each. Who brings an HTTP client takes care of that.
        """
        root = _root(self.llm.async_client)
        if self.llm.http_async_client is not None:
            return root
        here = asyncio.get_running_loop()
        for loop in [loop for loop in self._loops if loop.is_closed()]:
            self._loops.pop(loop, None)
        if here not in self._loops:
            fresh = openai.DefaultAsyncHttpxClient()
            self._loops[here] = root.copy(http_client=fresh)
        return self._loops[here]

    def flow(self, steps: Steps[T]) -> Flow[T]:
        """Return the flow of steps whose calls this client makes."""
        replies: list[Reply] | None = None
        try:
            while True:
                calls = steps.send(replies)  # type: ignore[arg-type]  # None begins
                asked = [self._reply(call) for call in calls]
                found = yield fan_out(asked, self.most, name="dpicl-next-token")
                none = Failure(None, "no answer")
                replies = [none if reply is None else reply for reply in found]
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _reply(self, call: Call) -> Do:
        def blocking() -> Reply:
            try:
                return _send(_root(self.llm.client), call)()
            except Exception as error:  # noqa: BLE001 - only its kind is kept
                return failure_of(error)

        async def awaiting() -> Reply:
            try:
                return await _send(self._async_root(), call)()
            except Exception as error:  # noqa: BLE001 - only its kind is kept
                return failure_of(error)

        return attempted(Do(blocking, awaiting))


def failure_of(error: Exception) -> Failure:
    """Return what may be said of an error: its kind and status."""
    if isinstance(error, openai.APIStatusError):
        return Failure(error.status_code, "status")
    if isinstance(error, openai.APITimeoutError):
        return Failure(None, "time-out")
    if isinstance(error, openai.APIConnectionError):
        return Failure(None, "no connection")
    return Failure(None, "unreadable answer")


def _root(completions: Any) -> Any:
    # The completions client is all that LangChain keeps of the SDK's client, which
    # alone has the retries and keys for the paths beside it.
    return completions._client  # noqa: SLF001


def _send(root: Any, call: Call) -> Callable[[], Any]:
    path = call.path
    if path.startswith(".."):
        path = str(httpx.URL(str(root.base_url)).join(path))
    if call.body is None:
        return lambda: root.get(path, cast_to=object)
    return lambda: root.post(path, cast_to=object, body=call.body)


@dataclass(frozen=True, repr=False)
class Terms:
    """How to ask: public, and the same for every prompt.

    Attributes:
        model: The model's name at the server.
        extra: More of every request's body, as the user set it.
    """

    model: str
    extra: dict[str, Any]

    def completion(self, prompts: list[Any], logprobs: int, **more: Any) -> Call:
        """Return the request for one token after each prompt."""
        body: dict[str, Any] = {
            **self.extra,
            "model": self.model,
            "prompt": prompts,
            "max_tokens": 1,
            # Or the figures may be those of another distribution than the model's.
            "temperature": 1,
            "top_p": 1,
            "logprobs": logprobs,
        }
        return Call("/completions", {**body, **more})


IDS = {"return_tokens_as_token_ids": True}
PLAIN = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Against a model's own defaults, which vLLM takes from its files."""


def tokenize(terms: Terms, text: str, *, special: bool = True) -> Call:
    """Return vLLM's request to cut up a text."""
    body = {"model": terms.model, "prompt": text, "add_special_tokens": special}
    return Call("../tokenize", body)


def tokens_of(reply: Reply) -> list[int] | None:
    """Read the tokens of a text, or None if there are none."""
    ids = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(ids, list) or not ids:
        return None
    return ids if all(type(token) is int for token in ids) else None


def detokenize(terms: Terms, tokens: list[int]) -> Call:
    """Return vLLM's request to spell tokens."""
    return Call("../detokenize", {"model": terms.model, "tokens": tokens})


def text_of(reply: Reply) -> str | None:
    """Read the text of tokens, or None if there is none."""
    text = reply.get("prompt") if isinstance(reply, dict) else None
    return text if isinstance(text, str) else None
