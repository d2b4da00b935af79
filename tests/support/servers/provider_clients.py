"""Clients of a server that runs for one test."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import httpx
import openai
from langchain_openai import ChatOpenAI, OpenAI

from support.servers.scripted_provider import KEY, MODEL

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""All of this is plain HTTP, and certificates take as long to read as a test."""


def client_of(
    stack: contextlib.AsyncExitStack,
    kind: type[ChatOpenAI | OpenAI],
    url: str,
    changes: dict[str, Any],
) -> Any:
    """Make a client of a server, with HTTP clients of its own, which end with the test.

    The defaults are shared by all event loops of a process.
    """
    sync = openai.DefaultHttpxClient(trust_env=False, verify=NO_CERTIFICATES)
    stack.callback(sync.close)
    client = openai.DefaultAsyncHttpxClient(trust_env=False, verify=NO_CERTIFICATES)
    stack.push_async_callback(client.aclose)
    arguments: dict[str, Any] = {
        "model": MODEL,
        "api_key": KEY,
        "base_url": f"{url}/v1",
        "max_retries": 0,
        # By default a busy machine has five seconds to take up a connection.
        "timeout": httpx.Timeout(600, connect=60),
        # Forced words too may come byte by byte.
        "max_tokens": 32,
        "http_client": sync,
        "http_async_client": client,
    }
    if issubclass(kind, ChatOpenAI):
        arguments["use_responses_api"] = False
    return kind(**{**arguments, **changes})
