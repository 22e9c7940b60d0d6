"""Carries out ``http`` targets: one request an attempt, and what its answer means.

A job activity like any other, loaded by our own workers beside a team's. It promises: no redirect is followed, TLS is
verified, no proxy of the environment is used, only allowed addresses are connected to (``http_connection``), and everything has
a bound: the time, the answer's size, and what is kept of it. The names of its failures are part of what ``retry_on`` can name.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from importlib.metadata import version
from typing import Final, NoReturn

import httpcore
import httpx
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.http_address import AddressRefused, Allowance
from activities.http_answer import BODY_LIMIT, HttpAnswer, keep_answer, retry_after_of
from activities.http_connection import CheckedBackend, Resolver, ResolverBusy, resolve
from activities.http_signature import SIGNATURE_HEADER, sign
from activities.http_url import InvalidUrl, read_url
from horarium import JobRun, current_run
from workflows.contracts import HTTP_REQUEST
from workflows.target import BODILESS, HttpMethod
from workflows.value import Value

CONNECT_WITHIN: Final = 10.0
"""Seconds for the name, the connection and the handshake. A host that is well needs a fraction of one."""

MARGIN: Final = timedelta(seconds=1)
"""Before the attempt's own timeout, so that what became of it is told by us and not by a silent worker."""

BODY_SHOWN: Final = 500
"""Characters of an answer's body that stand in the message of a failure."""

USER_AGENT: Final = f"Horarium/{version('horarium-server')}"


class HttpRequest(Value):
    """The payload of ``http_request``: an ``HttpTarget`` whose secrets the worker has put in."""

    method: HttpMethod = HttpMethod.POST
    url: str = ""
    headers: dict[str, str | tuple[str, ...]] = {}
    body: JsonValue = None
    signature: str | None = None
    success_statuses: tuple[int, ...] = ()


class HttpFailure(ApplicationError):
    """A request without success: of type ``HttpStatus503`` and the like, ``ConnectFailure``, ``ConnectionLost``, ``Timeout``."""

    def __init__(
        self,
        message: str,
        *,
        type: str,
        answer: HttpAnswer | None = None,
        permanent: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        evidence = [] if answer is None else [answer.model_dump(mode="json")]
        super().__init__(message, *evidence, type=type, non_retryable=permanent, next_retry_delay=retry_after)
        self.http_status = answer.status if answer else None


class HttpSender:
    """Sends the requests of a process."""

    def __init__(
        self, *, allowance: Allowance, resolver: Resolver = resolve, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self._backend = CheckedBackend(allowance=allowance, resolver=resolver)
        self._make_tls = tls or httpx.create_ssl_context
        self._tls: ssl.SSLContext | None = None

    @activity.defn(name=HTTP_REQUEST)
    async def http_request(self, request: HttpRequest) -> HttpAnswer:
        """Send the request of a job, once. Answers what the server did, if that is a success."""
        run, url = current_run(), _require_url(request)
        body = body_of(request)
        headers = headers_of(request, run, url=url, body=body)
        limit = _time_limit()
        try:
            async with asyncio.timeout(limit.total_seconds()):
                answer, retry_after = await self.exchange(request.method, url, headers, body)
        except AddressRefused as error:
            raise HttpFailure(str(error), type="AddressRefused", permanent=True) from None
        except ResolverBusy as error:
            raise HttpFailure(str(error), type="ResolverBusy") from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise HttpFailure(f"cannot connect to {_host(url)}: {_innermost(error)}", type="ConnectFailure") from None
        except (httpcore.LocalProtocolError, UnicodeEncodeError):
            # Its text would repeat the header, which may be a secret.
            raise HttpFailure(
                "a header's value is not allowed in HTTP", type="InvalidRequest", permanent=True
            ) from None
        except (httpcore.TimeoutException, TimeoutError):
            raise HttpFailure(
                f"no complete answer from {_host(url)} within {limit.total_seconds():g} s", type="Timeout"
            ) from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise HttpFailure(
                f"the connection to {_host(url)} was lost before the answer was complete: {_innermost(error)}",
                type="ConnectionLost",
            ) from None
        if not is_success(answer.status, request):
            _fail(answer, url, retry_after)
        return answer

    async def exchange(
        self, method: HttpMethod, url: httpx.URL, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[HttpAnswer, timedelta | None]:
        """Send, and read as much of the answer as is kept; also says what patience it asks for.

        Raises ``AddressRefused``, ``ResolverBusy``, ``UnicodeEncodeError`` where a header is not Latin-1, and what
        ``httpcore`` raises. The caller sets the time limit.
        """
        began = time.monotonic()
        port = url.port or (443 if url.scheme == "https" else 80)
        origin = httpcore.Origin(url.raw_scheme, url.raw_host, port)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=port, target=url.raw_path)
        async with (
            httpcore.AsyncHTTPConnection(
                origin, ssl_context=self._require_tls(), network_backend=self._backend
            ) as connection,
            connection.stream(
                method.value,
                target,
                headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
                content=body,
                extensions={"timeout": {"connect": CONNECT_WITHIN}},
            ) as response,
        ):
            kept, complete = await _read_head(response)
        took = timedelta(seconds=time.monotonic() - began)
        answer = keep_answer(response.status, response.headers, kept, complete=complete, took=took)
        return answer, retry_after_of(response.headers, now=datetime.now(UTC))

    def _require_tls(self) -> ssl.SSLContext:
        # Reading all the certificates takes a while, which a worker without such jobs need not spend.
        if self._tls is None:
            self._tls = self._make_tls()
        return self._tls


def is_success(status: int, request: HttpRequest) -> bool:
    """Say whether a status is what the job's owner wants."""
    return status in request.success_statuses if request.success_statuses else 200 <= status < 300


def body_of(request: HttpRequest) -> bytes | None:
    """Write the body; ``None`` where a request has none at all."""
    if request.method in BODILESS or (request.body is None and request.method is HttpMethod.DELETE):
        return None
    if request.body is None:
        return b""
    if isinstance(request.body, str):
        return request.body.encode(errors="replace")
    return json.dumps(request.body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def headers_of(request: HttpRequest, run: JobRun[JsonValue], *, url: httpx.URL, body: bytes | None) -> dict[str, str]:
    """Put the headers together. Those that say which run it is go before the job's own."""
    kind = "text/plain; charset=utf-8" if isinstance(request.body, str) else "application/json"
    defaults = {
        "Host": url.netloc.decode(),
        "User-Agent": USER_AGENT,
        "Accept": "*/*",
        **({"Content-Type": kind} if body else {}),
        **_trace_headers(),
    }
    own = {name: value if isinstance(value, str) else "".join(value) for name, value in request.headers.items()}
    identity = {
        # Not asked for, and not unpacked: a few packed bytes can be gigabytes.
        "Accept-Encoding": "identity",
        "Idempotency-Key": run.idempotency_key,
        "Horarium-Fence": str(run.fence),
        "Horarium-Tenant": run.tenant,
        "Horarium-Job": run.job_id,
        "Horarium-Run": run.run_id,
        "Horarium-Attempt": str(run.attempt),
        "Horarium-Scheduled-At": run.scheduled_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    if request.signature is not None:
        identity[SIGNATURE_HEADER] = sign(
            body or b"",
            secret=request.signature,
            at=int(time.time()),
            idempotency_key=run.idempotency_key,
            fence=run.fence,
        )
    return _merged(defaults, own, identity)


def _trace_headers() -> dict[str, str]:
    """Let the receiver go on in the run's trace; nothing while nobody traces."""
    headers = dict[str, str]()
    TraceContextTextMapPropagator().inject(headers)
    return headers


def _merged(*sets: Mapping[str, str]) -> dict[str, str]:
    """Put sets of headers together; the last one of a name, in whatever case, stays."""
    merged = dict[str, tuple[str, str]]()
    for headers in sets:
        merged |= {name.lower(): (name, value) for name, value in headers.items()}
    return dict(merged.values())


def _require_url(request: HttpRequest) -> httpx.URL:
    try:
        return read_url(request.url)
    except InvalidUrl as error:
        raise HttpFailure(f"url: {error}", type="InvalidUrl", permanent=True) from None


def _time_limit() -> timedelta:
    whole = activity.info().start_to_close_timeout or timedelta(minutes=5)
    return max(whole * 0.8, whole - MARGIN)


async def _read_head(response: httpcore.Response) -> tuple[bytes, bool]:
    """Read a body as far as it is kept; also says whether that is all of it."""
    kept = bytearray()
    async for chunk in response.aiter_stream():
        kept += chunk
        if len(kept) > BODY_LIMIT:
            return bytes(kept[:BODY_LIMIT]), False
    return bytes(kept), True


def _fail(answer: HttpAnswer, url: httpx.URL, retry_after: timedelta | None) -> NoReturn:
    message = f"{answer.status}{_phrase(answer.status)} from {_host(url)}"
    if location := answer.headers.get("location"):
        message += f", which leads to {location} and is not followed"
    if retry_after:
        message += f", which asks for {retry_after.total_seconds():.0f} s of patience"
    if answer.body:
        message += f": {answer.body[:BODY_SHOWN]}"
    patience = retry_after if answer.status == HTTPStatus.TOO_MANY_REQUESTS or answer.status >= 500 else None
    raise HttpFailure(message, type=f"HttpStatus{answer.status}", answer=answer, retry_after=patience)


def _phrase(status: int) -> str:
    with suppress(ValueError):
        return f" {HTTPStatus(status).phrase}"
    return ""


def _host(url: httpx.URL) -> str:
    return url.netloc.decode()


def _innermost(error: BaseException) -> str:
    """Say what the operating system or the TLS library said first."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
