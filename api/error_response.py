"""From errors to HTTP answers, for whatever goes wrong in a request. The only place where either is known."""

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from api.body import message_of
from api.problem import (
    PROBLEM_MEDIA_TYPE,
    FieldError,
    InvalidRequest,
    Problem,
    headers_of,
    problem_of,
    problem_of_status,
)
from workflows.error import HorariumError


def install_error_responses(app: FastAPI) -> None:
    """Answer every error of the application as a problem."""
    app.add_exception_handler(HorariumError, _answer_own)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_framework)
    app.add_exception_handler(Exception, _answer_bug)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Write a problem as an answer."""
    return Response(
        problem.model_dump_json(exclude_none=True),
        status_code=problem.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=headers,
    )


async def _answer_own(request: Request, error: Exception) -> Response:
    assert isinstance(error, HorariumError)
    return problem_response(problem_of(error), headers_of(error))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Answer what FastAPI found wrong, which is never in a body: those are read by ``body``."""
    assert isinstance(error, RequestValidationError)
    return problem_response(problem_of(InvalidRequest(*(_parameter_error(each) for each in error.errors()))))


def _parameter_error(error: Mapping[str, object]) -> FieldError:
    location, kind, message = error["loc"], str(error["type"]), str(error["msg"])
    assert isinstance(location, tuple)
    place, *rest = location
    return FieldError(parameter=str(rest[0]) if rest else str(place), detail=message_of(kind, message))


async def _answer_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = error.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}
    detail = f"there is no {request.method} at this path" if known else None
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of the first route at this path only.
        headers["Allow"] = ", ".join(_methods_at(request)) or headers.get("Allow", "")
    return problem_response(problem_of_status(error.status_code, detail=detail), headers)


def _methods_at(request: Request) -> list[str]:
    paths: Mapping[str, Mapping[str, object]] = request.app.openapi()["paths"]
    found = [methods for path, methods in paths.items() if compile_path(path)[0].match(request.url.path)]
    return sorted({method.upper() for methods in found for method in methods})


async def _answer_bug(request: Request, error: Exception) -> Response:
    # The server logs it, with its trace.
    return problem_response(problem_of_status(HTTPStatus.INTERNAL_SERVER_ERROR, detail="this is a bug in Horarium"))
