"""OpenTelemetry has no say in the sealed region: no span, record or measurement.

Instrumented clients are told to keep still by the suppression flag, but only those that
ask for it; a client that opens spans by itself does not. So the region also has a
parent span that is not sampled, which drops its children under the usual sampler, and
the SDK, where it is loaded, makes nothing there at all, whatever its sampler is.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

_TRACE_ID = 0x6470_6963_6C20_7365_616C_6564_2072_6567
_SPAN_ID = 0x7365_616C_6564_2E2E

_SDK: dict[str, tuple[str, str]] = {
    "opentelemetry.sdk.trace": ("Tracer", "start_span"),
    "opentelemetry.sdk._logs._internal": ("Logger", "emit"),
    "opentelemetry.sdk.metrics._internal.measurement_consumer": (
        "SynchronousMeasurementConsumer",
        "consume_measurement",
    ),
}
_switched: set[str] = set()


@contextlib.contextmanager
def no_instrumentation() -> Iterator[None]:
    """Fill the current context so that instrumentation which asks keeps still."""
    try:
        from opentelemetry import context, trace
    except ImportError:
        yield
        return
    parent = trace.SpanContext(_TRACE_ID, _SPAN_ID, is_remote=False)
    inside = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    inside = context.set_value("suppress_instrumentation", True, inside)
    token = context.attach(inside)
    try:
        with _suppressed():
            yield
    finally:
        context.detach(token)


def switch_off_sdk(is_sealed: Callable[[], bool]) -> None:
    """Give the SDK's own methods an off switch, once each, as soon as they are loaded.

    Args:
        is_sealed: Whether the caller is in the sealed region.
    """
    for module, (owner, method) in _SDK.items():
        if module in _switched or module not in sys.modules:
            continue
        _switched.add(module)
        found = getattr(sys.modules[module], owner, None)
        if hasattr(found, method):
            setattr(found, method, _switched_off(getattr(found, method), is_sealed))


def _switched_off(
    original: Callable[..., Any], is_sealed: Callable[[], bool]
) -> Callable[..., Any]:
    from opentelemetry.trace import INVALID_SPAN

    def method(*args: Any, **kwargs: Any) -> Any:
        # The other two return nothing that anybody looks at.
        return INVALID_SPAN if is_sealed() else original(*args, **kwargs)

    return method


def _suppressed() -> AbstractContextManager[Any]:
    try:
        from opentelemetry.instrumentation.utils import suppress_instrumentation
    except ImportError:
        return contextlib.nullcontext()
    return suppress_instrumentation()  # type: ignore[no-any-return]
