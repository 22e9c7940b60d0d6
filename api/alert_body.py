"""What a job's owner wants to be told of, as callers write it and as they are answered. Pure."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field

from activities.http_url import URL_LIMIT
from api.body import Body, Integer
from api.field import in_any_case
from api.problem import FieldError
from api.target_body import SecretBody, check_url
from workflows.alert_rule import AlertKind, AlertRules
from workflows.target import SecretReference

_YEAR: Final = 365 * 86_400

Seconds = Annotated[float, Field(ge=1, le=_YEAR)]


class AlertsBody(Body):
    """Who is told when something goes wrong with a job. Without it, the receiver of the installation, if there is one."""

    url: Annotated[str, Field(max_length=URL_LIMIT), AfterValidator(check_url)] | SecretBody | None = Field(
        default=None, description="Gets a POST. Default: the receiver of the installation."
    )
    on: list[Annotated[AlertKind, in_any_case(AlertKind)]] = Field(
        default=[AlertKind.DEAD, AlertKind.MISSED], max_length=len(AlertKind), description="Empty: nothing is told."
    )
    missed_more_than: Integer = Field(default=0, ge=0, le=1_000_000, description="missed: so many at once are no news.")
    catch_up_more_than: Integer = Field(
        default=100, ge=0, le=1_000_000, description="catch_up: so many at once are no news."
    )
    late_after_seconds: Seconds | None = Field(default=None, description="late: after a fire's target.")
    finish_within_seconds: Seconds | None = Field(default=None, description="not_finished_by: after its nominal time.")
    signature: SecretBody | None = Field(default=None, description="Key of an HMAC in `Horarium-Signature`.")


class AlertsAnswer(BaseModel):
    """As in the body of a job."""

    url: str | SecretReference | None
    on: list[AlertKind]
    missed_more_than: int
    catch_up_more_than: int
    late_after_seconds: float | None
    finish_within_seconds: float | None
    signature: SecretReference | None


def define_alerts(body: AlertsBody | None) -> AlertRules | None:
    """Say what a body stands for."""
    if body is None:
        return None
    return AlertRules(
        url=_reference(body.url) if isinstance(body.url, SecretBody) else body.url or "",
        on=tuple(dict.fromkeys(body.on)),
        missed_more_than=body.missed_more_than,
        catch_up_more_than=body.catch_up_more_than,
        late_after=_span(body.late_after_seconds),
        finish_within=_span(body.finish_within_seconds),
        signature=None if body.signature is None else _reference(body.signature),
    )


def describe_alerts(rules: AlertRules | None) -> AlertsAnswer | None:
    """Say the rules of a job."""
    if rules is None:
        return None
    return AlertsAnswer(
        url=rules.url or None,
        on=list(rules.on),
        missed_more_than=rules.missed_more_than,
        catch_up_more_than=rules.catch_up_more_than,
        late_after_seconds=None if rules.late_after is None else rules.late_after.total_seconds(),
        finish_within_seconds=None if rules.finish_within is None else rules.finish_within.total_seconds(),
        signature=rules.signature,
    )


def broken_alert_rules(body: AlertsBody | None) -> Iterator[FieldError]:
    """Name what is missing for what is asked."""
    if body is None:
        return
    if AlertKind.LATE in body.on and body.late_after_seconds is None:
        yield FieldError(pointer="/alerts/late_after_seconds", detail="required with late")
    if AlertKind.NOT_FINISHED in body.on and body.finish_within_seconds is None:
        yield FieldError(pointer="/alerts/finish_within_seconds", detail="required with not_finished_by")


def _reference(body: SecretBody) -> SecretReference:
    return SecretReference(name=body.name)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
