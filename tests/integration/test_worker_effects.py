"""The effect store of workers: ours, and those of teams."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity

from horarium import current_run, once, once_sync
from horarium.effect import StoreUnavailable
from horarium.effect_sql import SqlEffectStore
from tests.effect_claims import LEASE, claim_of
from tests.eventually import eventually
from tests.integration.test_sdk_worker import RUN, failure_of, staged
from workers import effects
from workers.devserver import DevServer
from workers.effects import claims_kept, open_effects
from workers.settings import InvalidSettings, Role, Settings, read_settings


async def test_a_job_worker_that_was_told_no_database_has_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of its own would be one that no other worker knows. Nothing is made on disk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HORARIUM_DATABASE_URL", raising=False)
    async with open_effects(Settings(role=Role.JOB)) as desk:
        assert desk is None
    assert os.listdir(tmp_path) == []


async def test_a_worker_keeps_effects_in_its_database_or_where_it_is_told(tmp_path: Path) -> None:
    """The URL in the environment is a secret like the other one."""
    for given in ({"database_url": f"sqlite:///{tmp_path}/a"}, {"effects_url": f"sqlite:///{tmp_path}/b"}):
        settings = read_settings({"role": "job", **given})
        assert str(tmp_path) not in repr(settings)
        async with open_effects(settings) as desk:
            assert desk is not None
            desk.release(claim_of(1)).result(10)
    assert {"a", "b"} <= set(os.listdir(tmp_path))


async def test_a_url_that_is_none_stops_the_worker_with_the_name_of_its_setting() -> None:
    """Without repeating it."""
    with pytest.raises(InvalidSettings, match=r"^HORARIUM_EFFECTS_URL: no driver") as refusal:
        async with open_effects(Settings(effects_url="mysql://u:secret@h/d")):
            pass
    assert "secret" not in str(refusal.value)


async def test_claims_are_kept_for_at_least_a_day() -> None:
    """A shorter time would be a mistake: runs are redriven later than that."""
    assert Settings().effect_retention == timedelta(days=90)
    with pytest.raises(InvalidSettings, match="HORARIUM_EFFECT_RETENTION: at least 86400 seconds"):
        read_settings({"effect_retention": "3600"})


async def test_the_scheduler_role_prunes_and_goes_on_when_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be away at that moment."""
    pruned: list[timedelta] = []

    async def prune(_: SqlEffectStore, *, older_than: timedelta) -> int:
        pruned.append(older_than)
        if len(pruned) == 1:
            raise StoreUnavailable("away")
        return 0

    monkeypatch.setattr(SqlEffectStore, "prune", prune)
    monkeypatch.setattr(effects, "PRUNE_EVERY", timedelta(milliseconds=10))
    settings = Settings(database_url=f"sqlite:///{tmp_path}/h", effect_retention=timedelta(days=400))
    async with open_effects(settings):
        await eventually(lambda: len(pruned) >= 3)
    assert set(pruned) == {timedelta(days=400)}


@pytest.mark.parametrize(
    ("effects", "runs", "kept"), [(90, 90, 120), (90, 400, 430), (400, 90, 400), (1, 1, 31)], ids=str
)
def test_claims_are_kept_longer_than_any_run_can_be_redriven(effects: int, runs: int, kept: int) -> None:
    """Whatever the two retentions are: a dead run is redriven as long after its end as it is kept, its effects were before."""
    settings = Settings(effect_retention=timedelta(days=effects), run_retention=timedelta(days=runs))
    assert claims_kept(settings) == timedelta(days=kept)


@pytest.mark.parametrize("style", ["async", "thread"])
async def test_a_teams_worker_needs_the_sdk_and_a_url(
    temporal_server: DevServer, database_url: str, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    """On a real worker, with a real store. The plugin closes it with the worker."""
    calls: list[str] = []

    @activity.defn(name="pay")
    async def pay() -> str:
        async def call(key: str) -> str:
            calls.append(key)
            return f"fence {current_run().fence}"

        return await once("pay", call)

    @activity.defn(name="pay")
    def pay_in_thread() -> str:
        def call(key: str) -> str:
            calls.append(key)
            return f"fence {current_run().fence}"

        return once_sync("pay", call)

    monkeypatch.setenv("HORARIUM_EFFECTS_URL", database_url)
    async with staged(temporal_server, activities=[pay if style == "async" else pay_in_thread]) as stage:
        results = [
            await (await stage.start("pay", RUN | {"attempt": attempt, "fence": 40 + attempt})).result()
            for attempt in (1, 2)
        ]
        assert [result["result"] for result in results] == ["fence 41", "fence 41"]
        error = await failure_of(await stage.start("pay", RUN | {"fence": 41}))
    assert getattr(error, "type", None) == "EffectRefused"
    assert len(calls) == 1


async def test_two_workers_that_share_a_store_do_not_both_get_a_claim(database_url: str) -> None:
    """Each has a desk of its own."""
    settings = Settings(database_url=database_url)
    async with open_effects(settings) as first, open_effects(settings) as second:
        assert first is not None
        assert second is not None
        until = asyncio.get_running_loop().time() + 1
        futures = [desk.acquire(claim_of(1), lease=LEASE, until=until) for desk in (first, second)]
        answers = [type(await asyncio.wrap_future(future)).__name__ for future in futures]
    assert sorted(answers) == ["Claimed", "Held"]
