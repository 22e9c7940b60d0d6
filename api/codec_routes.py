"""The codec endpoint for Temporal's Web UI and command line, and the page where a browser is given a key for it.

The Web UI sends no API key: it has none. It can send this site's cookies, so a browser is given the key once, on the page, and
keeps it in one that scripts do not see and other sites cannot make it send.
"""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, TypeAlias
from urllib.parse import parse_qs

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import URL

from activities.api_key import read_key
from api.access import CODEC, CODEC_COOKIE, admit
from api.body import read_body
from api.caller import Caller
from api.codec import BODY_LIMIT, CodecAnswer, CodecBody, decode_payloads, encode_payloads
from api.codec_page import codec_page
from api.openapi import CODEC_BODY, problems
from api.problem import FieldError, InvalidRequest
from api.request import is_of_another_site, read_form, read_json
from api.response import json_response
from api.server_address import is_loopback
from api.strict_json import require_fit
from horarium.encryption import Ciphers
from workers.settings import variable_of
from workflows.error import NotFound

OFF: Final = f"payloads are not encrypted here: {variable_of('encryption_keys_file')} is not set"

codec_router = APIRouter(prefix=CODEC, tags=["codec"])


def _ciphers_of(request: Request) -> Ciphers:
    """Get the keys. Whoever may not use them has been refused before."""
    ciphers: Ciphers | None = request.app.state.ciphers
    if ciphers is None:
        raise NotFound(OFF)
    return ciphers


Keys: TypeAlias = Annotated[Ciphers, Depends(_ciphers_of)]
Asking: TypeAlias = Annotated[Caller, Depends(admit)]


@codec_router.post(
    "/decode", response_model=CodecAnswer, openapi_extra=CODEC_BODY, responses=problems(404, 413, 415, 422)
)
async def decode(request: Request, caller: Asking, keys: Keys) -> Response:
    """Decrypt payloads of the caller's tenant, as Temporal's Web UI asks for it. What is not encrypted comes back as it is."""
    body = await _read(request)
    answer = await to_thread.run_sync(partial(decode_payloads, body, keys, caller=caller))
    return json_response(answer.model_dump_json())


@codec_router.post(
    "/encode", response_model=CodecAnswer, openapi_extra=CODEC_BODY, responses=problems(404, 413, 415, 422)
)
async def encode(request: Request, caller: Asking, keys: Keys) -> Response:
    """Encrypt payloads for workflows of the caller's tenant."""
    body = await _read(request)
    answer = await to_thread.run_sync(partial(encode_payloads, body, keys, caller=caller))
    return json_response(answer.model_dump_json())


@codec_router.get("", include_in_schema=False)
async def show_page(request: Request) -> Response:
    """Show where a browser is given a key."""
    presented = read_key(request.cookies.get(CODEC_COOKIE, ""))
    return _page(
        codec_page(key_id=None if presented is None else presented.key_id, is_on=request.app.state.ciphers is not None)
    )


@codec_router.post("/key", include_in_schema=False)
async def keep_key(request: Request) -> Response:
    """Let the browser keep a key, or forget it."""
    _require_same_site(request)
    key = parse_qs(await read_form(request)).get("key", [""])[0].strip()
    answer = RedirectResponse(CODEC, status_code=HTTPStatus.SEE_OTHER)
    if not key:
        answer.delete_cookie(CODEC_COOKIE, path=CODEC)
    elif read_key(key) is None:
        page = codec_page(
            key_id=None, is_on=request.app.state.ciphers is not None, problem="This is no API key of Horarium."
        )
        return _page(page, status=HTTPStatus.UNPROCESSABLE_ENTITY)
    else:
        answer.set_cookie(
            CODEC_COOKIE, key, path=CODEC, httponly=True, samesite="strict", secure=_is_secure(request.url)
        )
    return answer


async def _read(request: Request) -> CodecBody:
    namespace = request.headers.get("x-namespace")
    own = request.app.state.namespace
    if namespace not in (None, own):
        raise InvalidRequest(
            FieldError(parameter="X-Namespace", detail=f"this service keeps its jobs in namespace {own!r}")
        )
    return read_body(CodecBody, require_fit(await read_json(request, limit=BODY_LIMIT)))


def _require_same_site(request: Request) -> None:
    """Refuse the forms of other sites, which would sign their reader in as somebody else."""
    if is_of_another_site(request):
        raise InvalidRequest(
            FieldError(parameter="Sec-Fetch-Site or Origin", detail="a key is given on this site's own page")
        )


def _is_secure(url: URL) -> bool:
    """Say whether a browser shall send the key over TLS alone: not on this machine, where there is none.

    The scheme does not tell of a proxy that ends TLS on another machine.
    """
    return url.scheme == "https" or not is_loopback(url.hostname or "")


def _page(text: str, *, status: int = HTTPStatus.OK) -> Response:
    headers = {
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
    }
    return HTMLResponse(text, status_code=status, headers=headers)
