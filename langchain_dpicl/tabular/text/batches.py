"""Requests and replies of providers' batch files, matched by an opaque id.

A provider may give replies in any order, leave some out, or give one twice: the place
in the file says nothing. What belongs together is told by the id alone, a keyed digest
of the unit and its text (`Part.tag`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import convert_to_openai_messages
from langchain_core.prompt_values import PromptValue

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.common.slots import Slot, answered
from langchain_dpicl.errors import InvalidParameterError

URL = "/v1/chat/completions"


def request(tag: str, prompt: PromptValue, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line of a batch in the form of OpenAI's.

    Example:
        >>> from langchain_core.prompt_values import StringPromptValue
        >>> request("a1", StringPromptValue(text="Hello"), {"model": "m"})["body"]
        {'model': 'm', 'messages': [{'role': 'user', 'content': 'Hello'}]}
    """
    messages = convert_to_openai_messages(prompt.to_messages())
    return {
        "custom_id": tag,
        "method": "POST",
        "url": URL,
        "body": {**body, "messages": messages},
    }


def check_body(body: Mapping[str, Any]) -> None:
    """Refuse what can't stand in a request's body.

    Raises:
        InvalidParameterError: If JSON can't hold it.
    """
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError):
        pass
    else:
        return
    raise InvalidParameterError(
        "A request's body must be made of text, numbers and lists, as JSON has them: "
        f"look at {', '.join(sorted(body))}."
    )


def replies_of(lines: Any) -> Iterator[tuple[str, Hidden[Slot]]]:
    """Yield the id and the answer of each line of a provider's output.

    Args:
        lines: A path, or an iterable of lines (text, bytes or dictionaries), as OpenAI
            writes them (`response.body.choices`), or Anthropic (`result.message`). A
            line that can't be read or that tells of a failure is left out.

    Raises:
        InvalidParameterError: If this is neither, or the file can't be read.
    """
    if isinstance(lines, str | os.PathLike):
        reason = ""
        try:
            lines = Path(lines).read_bytes().split(b"\n")
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if reason:
            raise InvalidParameterError(f"lines: the file can't be read ({reason}).")
    if not isinstance(lines, Iterable) or isinstance(lines, bytes | Mapping):
        raise InvalidParameterError(
            "lines must be the path of a provider's output, or an iterable of its "
            f"lines, not {type(lines).__name__}."
        )
    for line in lines:
        found = Hidden(_reply(line))
        if found.value is not None:
            tag, text = found.value
            yield tag, Hidden(answered(text))


def _reply(line: Any) -> tuple[str, str] | None:
    """Return the id and the text of a line; None where there is none."""
    try:
        found = json.loads(line) if isinstance(line, str | bytes) else line
        tag = found["custom_id"]
        if "result" in found:
            blocks = found["result"]["message"]["content"]
            text = "".join(one["text"] for one in blocks if one["type"] == "text")
        else:
            message = found["response"]["body"]["choices"][0]["message"]
            text = message["content"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return (tag, text) if isinstance(tag, str) and isinstance(text, str) else None
