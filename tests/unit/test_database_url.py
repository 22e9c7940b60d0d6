"""URLs of databases."""

from pathlib import Path

import pytest

from activities.database import InvalidDatabaseUrl, open_database, to_json


def test_the_folder_of_a_sqlite_file_is_made(tmp_path: Path) -> None:
    """The first start of a new installation finds nothing."""
    engine = open_database(f"sqlite:///{tmp_path}/a/b/horarium.sqlite")
    assert (tmp_path / "a" / "b").is_dir()
    assert engine.dialect.driver == "aiosqlite"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_postgresql_urls_are_taken_as_people_write_them(scheme: str) -> None:
    """libpq's spelling of a TLS mode included."""
    engine = open_database(f"{scheme}://user:secret@db.example:5433/horarium?sslmode=require")
    assert engine.dialect.driver == "asyncpg"
    assert engine.url.query == {"ssl": "require"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "horarium.sqlite",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://u:secret@h/d",
        "postgresql+psycopg://u:secret@h/d",
    ],
)
def test_other_urls_are_refused_without_being_repeated(url: str) -> None:
    """A URL may hold a password, and an error message ends up in a log."""
    with pytest.raises(InvalidDatabaseUrl) as refusal:
        open_database(url)
    assert "secret" not in str(refusal.value)


def test_json_is_written_so_that_every_database_takes_it() -> None:
    """ASCII alone; NaN and the infinities, which JSON lacks, as text that can be seen."""
    assert to_json({"a": "\x00\ud800é", "b": [1.5, None, True]}) == '{"a":"\\u0000\\ud800\\u00e9","b":[1.5,null,true]}'
    assert to_json([float("nan"), {"x": float("-inf")}]) == '["nan",{"x":"-inf"}]'
