"""The proxy of the server tests sees what passes through it, and who hangs up."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from support.servers.recording_proxy import Answer, Drop, Hold, RecordingProxy

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SAID = Answer(200, (b"one ", b"two"), {"content-type": "text/plain"})


@pytest.fixture
def behind() -> Iterator[RecordingProxy]:
    with RecordingProxy(lambda _exchange: SAID) as running:
        yield running


@pytest.fixture(params=["function", "server"])
def proxy(
    request: pytest.FixtureRequest, behind: RecordingProxy
) -> Iterator[RecordingProxy]:
    """A proxy before a function, and one before another server."""
    if request.param == "function":
        yield behind
        return
    with RecordingProxy(behind.url) as running:
        yield running


def connect(proxy: RecordingProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=60)


def ask(proxy: RecordingProxy, body: object = None) -> tuple[int, bytes]:
    connection = connect(proxy)
    try:
        headers = {"authorization": "Bearer key"}
        connection.request("POST", "/v1/x", json.dumps(body or {}), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_passes_is_recorded(proxy: RecordingProxy) -> None:
    assert ask(proxy, {"prompt": ["a", "b"]}) == (200, b"one two")
    assert ask(proxy, {"messages": [{"content": "c"}]}) == (200, b"one two")
    until(lambda: not proxy.in_flight)
    first, second = proxy.exchanges
    assert (first.number, first.path, first.prompts) == (0, "/v1/x", ["a", "b"])
    assert first.headers["authorization"] == "Bearer key"
    assert (second.number, second.prompts) == (1, ["c"])
    assert [e.status for e in proxy.exchanges] == [200, 200]
    assert not any(e.disconnected for e in proxy.exchanges)
    proxy.forget()
    assert proxy.exchanges == []


def test_a_process_with_many_open_files_is_served(proxy: RecordingProxy) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 2048
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    with contextlib.ExitStack() as stack:
        # The next connection's number is past what `select` takes.
        while (number := os.open(os.devnull, os.O_RDONLY)) < enough // 2:
            stack.callback(os.close, number)
        stack.callback(os.close, number)
        assert ask(proxy) == (200, b"one two")


def test_faults_are_given_instead(proxy: RecordingProxy) -> None:
    faults = iter([Answer.of({"no": 1}, 418, retry_after_ms="1"), Drop(), None])
    proxy.rule = lambda _exchange: next(faults)
    assert ask(proxy) == (418, b'{"no": 1}')
    with pytest.raises(http.client.RemoteDisconnected):
        ask(proxy)
    assert ask(proxy) == (200, b"one two")
    until(lambda: not proxy.in_flight)
    assert [e.status for e in proxy.exchanges] == [418, None, 200]


def test_those_in_flight_are_counted(proxy: RecordingProxy) -> None:
    go = threading.Event()
    proxy.rule = lambda _exchange: Hold(go)
    clients = [threading.Thread(target=ask, args=(proxy,)) for _ in range(5)]
    for client in clients:
        client.start()
    until(lambda: proxy.in_flight == 5)
    go.set()
    for client in clients:
        client.join()
    until(lambda: not proxy.in_flight)
    assert proxy.most_in_flight == 5


@pytest.mark.parametrize("where", ["proxy", "behind"])
def test_who_hangs_up_is_noticed(
    proxy: RecordingProxy, behind: RecordingProxy, where: str
) -> None:
    waiting = proxy if where == "proxy" else behind
    never = threading.Event()
    waiting.rule = lambda _exchange: Hold(never)
    connection = connect(proxy)
    connection.request("POST", "/v1/x", "{}")
    until(lambda: waiting.in_flight == 1)
    connection.close()
    # The server behind a proxy is hung up on as well.
    until(lambda: not waiting.in_flight and not proxy.in_flight)
    assert [e.disconnected for e in waiting.exchanges] == [True]
    assert [e.disconnected for e in proxy.exchanges] == [True]


def test_a_closed_proxy_hangs_up_on_everybody(proxy: RecordingProxy) -> None:
    never = threading.Event()
    proxy.rule = lambda _exchange: Hold(never)
    connection = connect(proxy)
    connection.request("POST", "/v1/x", "{}")
    until(lambda: proxy.in_flight == 1)
    proxy.close()
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        connection.getresponse()
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        ask(proxy)
    assert not proxy.in_flight
