"""From calls to HTTP and back, with retries: the only place that knows httpx."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

try:
    import httpx
except ImportError as error:
    raise ImportError("the client needs httpx: pip install 'horarium[client]'") from error

from pydantic import ValidationError

from horarium.client.answer import Problem
from horarium.client.call import Call, Query
from horarium.client.error import ApiError, HorariumError, UnexpectedAnswer, Unreachable, Unsendable, api_error
from horarium.client.retry import Attempts, Retry

Result = TypeVar("Result")
Item = TypeVar("Item")

URL_VARIABLE: Final = "HORARIUM_API_URL"
KEY_VARIABLE: Final = "HORARIUM_API_KEY"
DEFAULT_URL: Final = "http://127.0.0.1:8000"

TIMEOUT: Final = timedelta(seconds=60)
"""Longer than the API itself waits: 35 s for a turn behind other requests for the same job, and 15 for its answer."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where the API is, and how it is talked to."""

    url: str
    api_key: str | None = field(repr=False)
    timeout: timedelta
    retry: Retry

    def options(self) -> dict[str, Any]:
        """Say what an httpx client is made with. It follows no redirects, so the key is sent to the API alone."""
        key = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        agent = f"horarium-python/{version('horarium')}"
        return {"headers": {"User-Agent": agent, "Accept": "application/json", **key}}


def make_connection(base_url: str | None, api_key: str | None, *, timeout: timedelta, retry: Retry) -> Connection:
    """Take what is given, else what the environment says. Raises ``Unsendable``, which never repeats a key."""
    url = base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    key = (api_key or os.environ.get(KEY_VARIABLE) or "").strip()
    _check_url(url, named="base_url" if base_url else URL_VARIABLE)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise Unsendable(f"{'api_key' if api_key else KEY_VARIABLE}: visible ASCII characters, without spaces")
    return Connection(url=url.rstrip("/"), api_key=key or None, timeout=timeout, retry=retry)


class SyncSender:
    """Sends calls, and waits for the answer. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._http = httpx.Client(**connection.options())

    def send(self, call: Call[Result]) -> Result:
        """Send a call, again and again where that may help. Raises ``HorariumError``."""
        return call.read(self._exchange(call).content)

    def walk(self, call: Call[list[Item]]) -> Iterator[Item]:
        """Go through a list, page by page."""
        page: Call[list[Item]] | None = call
        while page is not None:
            answer = self._exchange(page)
            yield from page.read(answer.content)
            page = _next_page(page, answer)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _exchange(self, call: Call[Any]) -> httpx.Response:
        attempts = Attempts(self._connection.retry, is_repeatable=call.route.is_repeatable)
        while True:
            try:
                return self._try(call, attempts.left())
            except HorariumError as error:
                wait = attempts.wait_after(error)
                if wait is None:
                    raise
            time.sleep(wait.total_seconds())

    def _try(self, call: Call[Any], left: timedelta) -> httpx.Response:
        try:
            return _require_answer(call, self._http.request(**_request(self._connection, call, left)))
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise _translate(error, self._connection) from error


class AsyncSender:
    """Sends calls in an event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._http = httpx.AsyncClient(**connection.options())

    async def send(self, call: Call[Result]) -> Result:
        """Send a call, again and again where that may help. Raises ``HorariumError``."""
        return call.read((await self._exchange(call)).content)

    async def walk(self, call: Call[list[Item]]) -> AsyncIterator[Item]:
        """Go through a list, page by page."""
        page: Call[list[Item]] | None = call
        while page is not None:
            answer = await self._exchange(page)
            for item in page.read(answer.content):
                yield item
            page = _next_page(page, answer)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _exchange(self, call: Call[Any]) -> httpx.Response:
        attempts = Attempts(self._connection.retry, is_repeatable=call.route.is_repeatable)
        while True:
            try:
                return await self._try(call, attempts.left())
            except HorariumError as error:
                wait = attempts.wait_after(error)
                if wait is None:
                    raise
            await asyncio.sleep(wait.total_seconds())

    async def _try(self, call: Call[Any], left: timedelta) -> httpx.Response:
        try:
            return _require_answer(call, await self._http.request(**_request(self._connection, call, left)))
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise _translate(error, self._connection) from error


def _request(connection: Connection, call: Call[Any], left: timedelta) -> dict[str, Any]:
    return {
        "method": call.route.method,
        "url": f"{connection.url}{call.path}",
        "params": call.query or None,
        "headers": call.headers,
        "content": call.content,
        "timeout": min(connection.timeout, left).total_seconds(),
    }


def _require_answer(call: Call[Any], answer: httpx.Response) -> httpx.Response:
    """Raise the error that an answer is."""
    is_answer = answer.is_success or (call.route.answers_503 and answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE)
    if is_answer:
        return answer
    raise _error_of(answer)


def _error_of(answer: httpx.Response) -> ApiError:
    return api_error(
        _problem_of(answer),
        retry_after=_read_retry_after(answer.headers.get("Retry-After"), now=datetime.now(UTC)),
        request_id=answer.headers.get("X-Request-Id"),
    )


def _problem_of(answer: httpx.Response) -> Problem:
    """Read the problem in an answer; one that has none is hardly of this API."""
    try:
        found = Problem.model_validate(answer.json())
    except (ValueError, ValidationError, RecursionError):
        found = Problem()
    stranger = f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}; is that a Horarium API?"
    detail = found.detail or found.title or stranger
    return found.model_copy(update={"status": answer.status_code, "detail": detail})


def _read_retry_after(text: str | None, *, now: datetime) -> timedelta | None:
    """Read seconds or a date; what is neither says nothing."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return timedelta(seconds=min(int(text), 86_400 * 365))
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(aware - now, timedelta(0))


def _next_page(call: Call[list[Item]], answer: httpx.Response) -> Call[list[Item]] | None:
    """Make the call for the page after this one. Of the link only the query is taken: it never leads to another host."""
    link = answer.links.get("next", {}).get("url")
    if link is None:
        return None
    query: Query = tuple(parse_qsl(urlsplit(link).query, keep_blank_values=True))
    return call.with_query(query)


def _translate(error: httpx.RequestError | httpx.InvalidURL, connection: Connection) -> HorariumError:
    reason = str(error) or type(error).__name__
    match error:
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return Unsendable(reason)
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.PoolTimeout() | httpx.ProxyError():
            return Unreachable(reason, url=connection.url, was_sent=False)
        case httpx.TransportError():
            return Unreachable(reason, url=connection.url, was_sent=True)
        case _:
            return UnexpectedAnswer(
                f"{connection.url} answered what cannot be read ({reason}); is that a Horarium API?"
            )


def _check_url(text: str, *, named: str) -> None:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Unsendable(f"{named}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise Unsendable(f"{named}: give a URL such as {DEFAULT_URL}, not {text!r}")
