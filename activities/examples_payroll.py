"""A payroll: every employee is paid once, whatever happens to the workers on the way.

Run it with ``HORARIUM_ACTIVITIES=activities.examples_payroll``. What a payment needs is in ``pay``: a name of its own for each
effect, and the key that ``once`` gives handed to the bank. ``docs/effects.md`` says what that promises.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio import activity

from horarium import JobRun, checkpoint, once


class Employee(BaseModel):
    """Somebody who is paid."""

    id: str
    account: str
    cents: int


class Payroll(BaseModel):
    """Payload of ``pay_salaries``."""

    bank: Path
    employees: list[Employee]


@activity.defn
async def pay_salaries(run: JobRun[Payroll]) -> dict[str, int]:
    """Pay everybody, from where the last attempt was.

    The checkpoint only saves time. It holds who was paid and not how many, because the list may be edited before the next
    attempt; and it may be a second old when a worker dies, which is when ``once`` matters.
    """
    bank = Bank(run.payload.bank)
    paid: list[str] = list(run.checkpoint or [])
    for employee in run.payload.employees:
        if employee.id not in paid:
            await pay(bank, employee)
            paid.append(employee.id)
            checkpoint(paid)
    return {"paid": len(paid)}


async def pay(bank: "Bank", employee: Employee) -> int:
    """Pay one employee, once, and get the number of the transfer."""
    return await once(f"pay:{employee.id}", lambda key: bank.transfer(employee.account, employee.cents, key=key))


class Bank:
    """Stands for a real bank: takes a while, and honours idempotency keys. Keeps its books in a SQLite file."""

    def __init__(self, books: Path) -> None:
        self._books = books

    async def transfer(self, account: str, cents: int, *, key: str) -> int:
        """Transfer money and return the number of the transfer. A key that it has seen before moves nothing."""
        number = await asyncio.to_thread(self._book, account, cents, key)
        await asyncio.sleep(0.05)  # the answer travels; whoever dies now does not know what became of it
        return number

    def transfers(self) -> Sequence[tuple[str, int]]:
        """List account and amount of what was transferred, in order."""
        return self._query("SELECT account, cents FROM transfers ORDER BY number")

    def calls(self) -> Sequence[tuple[str]]:
        """List the keys of all requests, repeated ones too."""
        return self._query("SELECT key FROM calls ORDER BY rowid")

    def _book(self, account: str, cents: int, key: str) -> int:
        with closing(self._open()) as books, books:
            books.execute("INSERT INTO calls VALUES (?)", (key,))
            books.execute(
                "INSERT INTO transfers (key, account, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (key, account, cents),
            )
            [number] = books.execute("SELECT number FROM transfers WHERE key = ?", (key,)).fetchone()
        return int(number)

    def _query(self, sql: str) -> Sequence[Any]:
        with closing(self._open()) as books:
            return books.execute(sql).fetchall()

    def _open(self) -> sqlite3.Connection:
        books = sqlite3.connect(self._books, timeout=30)
        books.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT)")
        books.execute(
            "CREATE TABLE IF NOT EXISTS transfers (number INTEGER PRIMARY KEY, key TEXT UNIQUE, account TEXT, cents INTEGER)"
        )
        return books
