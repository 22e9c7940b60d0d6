"""Delivers alerts: one POST, through the same checked connections as ``http`` targets.

A receiver may get an alert more than once, always with the same ``Idempotency-Key``, which is its id. Whatever is not a 2xx is
a failure, and is tried again by the workflow of the alert.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import httpcore
import httpx
from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.http_address import AddressRefused
from activities.http_connection import ResolverBusy
from activities.http_signature import SIGNATURE_HEADER, sign
from activities.http_target import USER_AGENT, HttpSender
from activities.http_url import InvalidUrl, read_url
from horarium import PermanentError
from horarium.secret import resolve_secrets
from workflows.alert import Alert, alert_body
from workflows.contracts import SEND_ALERT
from workflows.target import HttpMethod, SecretReference

logger = logging.getLogger(__name__)

PATIENCE: Final = timedelta(seconds=20)
"""For one delivery. Less than its activity has, so that what went wrong is told."""


class Alerter:
    """Sends the alerts of a process."""

    def __init__(self, sender: HttpSender, *, url_for_all: str | None, urls: Mapping[str, str] | None = None) -> None:
        """Alerts of jobs that name no receiver go to that of their tenant in ``urls``, or else to ``url_for_all``."""
        self._sender = sender
        self._urls = urls or {}
        self._url_for_all = url_for_all

    @activity.defn(name=SEND_ALERT)
    async def send_alert(self, alert: Alert) -> None:
        """Send an alert. Where there is nobody to tell, it is logged and done with."""
        for_tenant = self._urls.get(alert.tenant, self._url_for_all)
        given = for_tenant if alert.url == "" else _reveal(alert.url, tenant=alert.tenant)
        if given is None:
            logger.warning("alert without receiver", extra={"alert_id": alert.alert_id, "summary": alert.summary})
            return
        body = json.dumps(alert_body(alert), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        try:
            url = read_url(given)
            async with asyncio.timeout(PATIENCE.total_seconds()):
                answer, _ = await self._sender.exchange(HttpMethod.POST, url, _headers(alert, url, body), body)
        except (AddressRefused, InvalidUrl) as error:
            # Neither the secret in a URL nor the URL itself is told.
            raise ApplicationError(f"{type(error).__name__}", type="AlertRefused", non_retryable=True) from None
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
            TimeoutError,
            ResolverBusy,
        ) as error:
            raise ApplicationError(
                f"the receiver cannot be reached: {type(error).__name__}", type="AlertNotTaken"
            ) from None
        if not 200 <= answer.status < 300:
            raise ApplicationError(f"the receiver answered {answer.status}", type="AlertNotTaken")


def _headers(alert: Alert, url: httpx.URL, body: bytes) -> Mapping[str, str]:
    headers = {
        "Host": url.netloc.decode(),
        "User-Agent": USER_AGENT,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "Idempotency-Key": alert.alert_id,
        "Horarium-Alert": alert.kind.value,
    }
    if alert.signature is None:
        return headers
    secret = _reveal(alert.signature, tenant=alert.tenant)
    signature = sign(body, secret=secret, at=int(time.time()), idempotency_key=alert.alert_id, fence=0)
    return {**headers, SIGNATURE_HEADER: signature}


def _reveal(value: str | SecretReference, *, tenant: str) -> str:
    if isinstance(value, str):
        return value
    reference: JsonValue = value.model_dump(mode="json", by_alias=True)
    try:
        found, _ = resolve_secrets(reference, tenant=tenant, path="alerts")
    except PermanentError as error:
        # It may be put there within the day.
        raise ApplicationError(str(error), type="AlertNotTaken") from None
    return str(found)
