"""What somebody at a terminal sees of a generation, also where it stops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from langchain_dpicl.common.progress import Advance, is_watched, progress_bar
from langchain_dpicl.exceptions import DPError
from langchain_dpicl.few_shot.generation import Generation


@contextmanager
def generation_progress(
    generation: Generation, *, progress: bool | None
) -> Iterator[Advance]:
    """Show a bar while the block runs; where it stops, say how to go on.

    Args:
        generation: The generation.
        progress: Whether to show a bar; None: where somebody looks.

    Privacy:
        Tokens, and how many there are, are released: unlike that of a chain's group
        calls, this bar tells nothing that was not paid for.
    """
    drafts = generation.drafts
    stopped: DPError | None = None
    with progress_bar(
        "Writing examples",
        drafts.most_steps,
        shown=is_watched() if progress is None else progress,
        done=drafts.steps,
        speed="tokens/s",
    ) as advance:
        try:
            yield advance
        except DPError as error:
            stopped = error
        except KeyboardInterrupt:
            # A screen that is gone is no reason to hide the interrupt.
            with suppress(OSError, ValueError):
                sys.stderr.write(
                    f"Stopped at {drafts.steps} tokens, which are stored: go on with "
                    "generate(..., resume=True), at no charge.\n"
                )
            raise
    if stopped is not None:
        raise type(stopped)(
            f"{stopped} The generation is charged and stands at {drafts.steps} "
            "tokens, which are stored: go on with generate(..., resume=True), at "
            "no charge."
        )
