"""Answers of routes as HTTP: bodies, pages with their links, and whether what was read may be old."""

from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response
from pydantic import BaseModel

from activities.idempotency_store import StoredResponse
from activities.page import Page
from api.preview import dump_answers

STALE_HEADER: Final = "Horarium-Stale"

Item = TypeVar("Item", bound=BaseModel)


def json_response(body: str, *, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def stored_response(stored: StoredResponse) -> Response:
    """Answer as the request was answered when it was made first."""
    return Response(stored.body, status_code=stored.status, media_type="application/json", headers=stored.headers)


def page_response(
    request: Request, page: Page[Item], *, is_stale: bool, parameters: Mapping[str, str] | None = None
) -> Response:
    """Answer with a page. ``parameters`` are put into the links where the request did not name them."""
    links = [
        f'<{_page_path(request, cursor, parameters or {})}>; rel="{relation}"'
        for relation, cursor in (("next", page.next), ("prev", page.previous))
        if cursor is not None
    ]
    headers = {"Link": ", ".join(links)} if links else {}
    return json_response(dump_answers(page.items), headers=headers | stale_header(is_stale=is_stale))


def stale_header(*, is_stale: bool) -> dict[str, str]:
    """Say in a header whether Temporal is silent, so that what was read may be old."""
    return {STALE_HEADER: "true"} if is_stale else {}


def _page_path(request: Request, cursor: str, parameters: Mapping[str, str]) -> str:
    fixed = {"cursor", *parameters}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in fixed]
    return f"{request.url.path}?{urlencode([*kept, *parameters.items(), ('cursor', cursor)])}"
