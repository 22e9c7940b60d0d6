"""The command line's way to the API, over HTTP."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

import httpx
from pydantic import JsonValue

from api.cli_input import API_KEY, KEY_VARIABLE, describe_problem

URL_VARIABLE: Final = "HORARIUM_API_URL"
DEFAULT_URL: Final = "http://127.0.0.1:8000"

TIMEOUT_SECONDS: Final = 30.0
"""Longer than the API itself waits for anything."""

PAGE: Final = 200

JsonObject: TypeAlias = dict[str, JsonValue]

_ABOUT_INPUT: Final = frozenset({400, 413, 415, 422})
"""Answers that say that what was asked is wrong, and not only that it cannot be done now."""


class CommandFailed(Exception):
    """A command did not do what it should. One line, and the exit code."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class ApiClient:
    """Calls the API. Used in a ``with`` block. Raises ``CommandFailed`` for every answer that is an error."""

    def __init__(self, url: str | None = None) -> None:
        self._url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        key = API_KEY.get()
        # Sent to the API alone: redirects are not followed.
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(timeout=TIMEOUT_SECONDS, headers=headers)

    def __enter__(self) -> "ApiClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def post(self, path: str, body: JsonValue, *, key: str | None = None) -> JsonObject:
        """Send a body; ``key`` is its idempotency key."""
        return _object(self._call("POST", path, json=body, headers={"Idempotency-Key": key} if key else {}).json())

    def put(self, path: str, body: JsonValue, *, revision: int | None = None) -> JsonObject:
        """Write one thing; ``revision`` is the only one that may be replaced."""
        headers = {"If-Match": f'"{revision}"'} if revision is not None else {}
        return _object(self._call("PUT", path, json=body, headers=headers).json())

    def patch(self, path: str, patch: JsonValue, *, key: str | None, revision: int | None) -> JsonObject:
        """Send a merge patch; ``revision`` is the only one that may be changed."""
        headers = {"Content-Type": "application/merge-patch+json"}
        headers |= {"Idempotency-Key": key} if key else {}
        headers |= {"If-Match": f'"{revision}"'} if revision is not None else {}
        return _object(self._call("PATCH", path, content=json.dumps(patch), headers=headers).json())

    def get(self, path: str) -> JsonObject:
        """Read one thing."""
        return _object(self._call("GET", path).json())

    def delete(self, path: str, *, parameters: Mapping[str, str]) -> JsonObject:
        """Delete one thing."""
        return _object(self._call("DELETE", path, params=parameters).json())

    def list_all(self, path: str, *, parameters: Sequence[tuple[str, str]], limit: int | None) -> list[JsonObject]:
        """Read up to ``limit`` items of a list, or all, page by page."""
        found: list[JsonObject] = []
        size = PAGE if limit is None else min(limit, PAGE)
        for page in self._pages(path, parameters=[*parameters, ("limit", str(size))]):
            found += page
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    def list_whole(self, path: str) -> list[JsonObject]:
        """Read a list that comes in one piece."""
        return [_object(item) for item in self._call("GET", path).json()]

    def _pages(self, path: str, *, parameters: Sequence[tuple[str, str]]) -> Iterator[list[JsonObject]]:
        answer = self._call("GET", path, params=list(parameters))
        while True:
            yield [_object(item) for item in answer.json()]
            following = answer.links.get("next")
            if following is None:
                return
            answer = self._call("GET", following["url"])

    def _call(self, method: str, path: str, **arguments: object) -> httpx.Response:
        try:
            answer = self._http.request(method, f"{self._url}{path}", **arguments)  # type: ignore[arg-type]
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise CommandFailed(f"{URL_VARIABLE}: {error}", code=2) from error
        except httpx.HTTPError as error:
            advice = "is `horarium dev` or `horarium api` running?"
            raise CommandFailed(f"cannot reach the API at {self._url} ({error}); {advice}") from error
        if answer.is_success:
            return answer
        raise CommandFailed(_explain(answer), code=2 if answer.status_code in _ABOUT_INPUT else 1)


def _explain(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if answer.status_code == HTTPStatus.UNAUTHORIZED and isinstance(problem, dict):
        return f"{describe_problem(problem)} (set {KEY_VARIABLE}, or give --api-key before the command)"
    if isinstance(problem, dict):
        return describe_problem(problem)
    return f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}; is that a Horarium API?"


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise CommandFailed("the API answered something unexpected; is it of another version?")
    return value
