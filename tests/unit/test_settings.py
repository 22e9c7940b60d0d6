"""Settings from the environment."""

import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest
from temporalio import activity

from workers.activity_module import load_job_activities, name_of
from workers.connection import connect_options
from workers.settings import InvalidSettings, Role, list_likely_typos, read_settings


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings of whoever runs the tests."""
    import os

    for name in list(os.environ):
        if name.startswith(("HORARIUM_", "TEMPORAL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", "/nonexistent/temporal.toml")


ALERT_URLS = {"a": "https://x.example/?k=1", "b": "http://y.example"}


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("HORARIUM_ROLE", "Scheduler", "role", Role.SCHEDULER),
        ("HORARIUM_GRACEFUL_SHUTDOWN", "90", "graceful_shutdown", timedelta(seconds=90)),
        ("HORARIUM_GRACEFUL_SHUTDOWN", "PT1M30S", "graceful_shutdown", timedelta(seconds=90)),
        ("HORARIUM_LONG_SLEEP_THRESHOLD", "2.5", "long_sleep_threshold", timedelta(seconds=2.5)),
        ("HORARIUM_WAKE_AHEAD", "0", "wake_ahead", timedelta(0)),
        ("HORARIUM_ACTIVITIES", "my_team.jobs, other", "activities", ("my_team.jobs", "other")),
        ("HORARIUM_TASK_QUEUES", "reports", "task_queues", ("reports",)),
        ("HORARIUM_EXAMPLES", "false", "examples", False),
        ("HORARIUM_API_PORT", "", "api_port", 8000),
        ("HORARIUM_CATCH_UP_PER_SECOND", "0.5", "catch_up_per_second", 0.5),
        ("HORARIUM_MAX_BACKFILL_FIRES", "500", "max_backfill_fires", 500),
        ("HORARIUM_FAIRNESS_WEIGHTS", "payroll=5, reports = 0.5,", "fairness_weights", {"payroll": 5, "reports": 0.5}),
        ("HORARIUM_FAIRNESS_WEIGHTS", "", "fairness_weights", {}),
        ("HORARIUM_ALERT_URLS", "a=https://x.example/?k=1  b=http://y.example", "alert_urls", ALERT_URLS),
        ("HORARIUM_READY_FILE", "/run/ready", "ready_file", Path("/run/ready")),
    ],
)
def test_a_setting_is_read(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, field: str, expected: object
) -> None:
    """Durations are seconds or ISO 8601, lists have commas, and an empty variable is one that is not set."""
    monkeypatch.setenv(name, value)
    assert getattr(read_settings(), field) == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HORARIUM_API_PORT", "abc", "input should be a valid integer"),
        ("HORARIUM_API_PORT", "70000", "less than or equal to 65535, not '70000'"),
        ("HORARIUM_GRACEFUL_SHUTDOWN", "soon", "valid timedelta"),
        ("HORARIUM_GRACEFUL_SHUTDOWN", "nan", "NaN"),
        ("HORARIUM_GRACEFUL_SHUTDOWN", "1e400", "may not exceed"),
        ("HORARIUM_LONG_SLEEP_THRESHOLD", "0.5", "at least 1 seconds"),
        ("HORARIUM_WAKE_AHEAD", "5", "0, or 10 to 600 seconds"),
        ("HORARIUM_WAKE_AHEAD", "601", "0, or 10 to 600 seconds"),
        ("HORARIUM_TASK_QUEUES", ",", "at least 1 item"),
        ("HORARIUM_CATCH_UP_PER_SECOND", "-1", "greater than or equal to 0"),
        ("HORARIUM_MAX_BACKFILL_FIRES", "0", "greater than or equal to 1"),
        ("HORARIUM_FAIRNESS_WEIGHTS", "payroll", "tenant=weight, a weight being from 0.001 to 1000"),
        ("HORARIUM_FAIRNESS_WEIGHTS", "payroll=0", "tenant=weight"),
        ("HORARIUM_FAIRNESS_WEIGHTS", "payroll=nan", "tenant=weight"),
        ("HORARIUM_FAIRNESS_WEIGHTS", "=5", "tenant=weight"),
        ("HORARIUM_ALERT_URLS", "https://x.example/secret", "tenant=URL"),
        ("HORARIUM_ALERT_URLS", "a=x.example", "URL"),
        ("HORARIUM_EXAMPLES", "perhaps", "valid boolean"),
        ("HORARIUM_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error', not 'loud'"),
        ("HORARIUM_MAX_CACHED_WORKFLOWS", "30", "at least HORARIUM_WORKFLOW_TASK_SLOTS, which is 40"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    """Whoever starts a process must see at a glance what to correct."""
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings) as caught:
        read_settings()
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{name}: ")
    assert message in line


def test_several_wrong_settings_are_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One start, all mistakes."""
    monkeypatch.setenv("HORARIUM_API_PORT", "abc")
    monkeypatch.setenv("HORARIUM_ROLE", "boss")
    with pytest.raises(InvalidSettings) as caught:
        read_settings()
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["HORARIUM_ROLE", "HORARIUM_API_PORT"]


def test_options_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not given leave it as it is."""
    monkeypatch.setenv("HORARIUM_API_PORT", "1")
    monkeypatch.setenv("HORARIUM_API_HOST", "::1")
    settings = read_settings({"api_port": 2, "api_host": None})
    assert (settings.api_port, settings.api_host) == (2, "::1")


def test_the_password_of_the_database_is_not_shown() -> None:
    """Settings end up in logs."""
    assert "s3cret" not in repr(read_settings({"database_url": "postgresql://u:s3cret@h/d"}))


def test_a_misspelt_variable_is_noticed() -> None:
    """It would do nothing, silently."""
    assert list_likely_typos({"HORARIUM_ACTIVITES": "x", "HORARIUM_ROLE": "job", "HORARIUM_BASE": "x", "PATH": ""}) == [
        "HORARIUM_ACTIVITES is not a setting; did you mean HORARIUM_ACTIVITIES?"
    ]


class TestTemporal:
    """Where Temporal is."""

    def test_without_any_setting_it_is_on_this_machine(self) -> None:
        """Where a development server is."""
        assert connect_options(read_settings())["target_host"] == "localhost:7233"

    def test_temporals_own_environment_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Teams that use Temporal have it set."""
        monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
        monkeypatch.setenv("TEMPORAL_NAMESPACE", "crons")
        options = connect_options(read_settings())
        assert (options["target_host"], options["namespace"]) == ("temporal.example:7233", "crons")

    def test_a_profile_counts_and_our_settings_override_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The same file that the ``temporal`` command line reads."""
        profile = tmp_path / "temporal.toml"
        profile.write_text('[profile.default]\naddress = "cloud.example:7233"\nnamespace = "crons"\napi_key = "k"\n')
        monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(profile))
        options = connect_options(read_settings({"temporal_namespace": "other"}))
        assert (options["target_host"], options["namespace"]) == ("cloud.example:7233", "other")
        assert options["tls"]

    def test_a_broken_profile_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As any wrong setting is."""
        monkeypatch.setenv("TEMPORAL_PROFILE", "absent")
        with pytest.raises(InvalidSettings, match=r"TEMPORAL_\.\.\..*absent"):
            connect_options(read_settings())


@activity.defn
async def noop() -> None:
    """Take a name that an example has."""


@activity.defn(name="plan_fires")
async def takes_our_name() -> None:
    """Take a name that Horarium has."""


@activity.defn(name="noop")
async def another_noop() -> None:
    """Take a name that is taken."""


def module_with(monkeypatch: pytest.MonkeyPatch, name: str, *functions: object) -> str:
    """Make a module that can be imported."""
    module = ModuleType(name)
    vars(module).update({f"f{index}": function for index, function in enumerate(functions)})
    monkeypatch.setitem(sys.modules, name, module)
    return name


class TestJobCode:
    """Modules that a worker is pointed at."""

    def test_the_examples_are_there_without_any_setting(self) -> None:
        """So that the first job needs no code."""
        names = {name_of(function) for function in load_job_activities([], examples=True)}
        assert names == {"noop", "tick", "send_report", "flaky"}

    def test_a_teams_function_goes_before_an_example(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples must not be in anybody's way."""
        name = module_with(monkeypatch, "team", noop, "not an activity", print, noop)
        loaded = load_job_activities([name], examples=True)
        assert loaded[0] is noop
        assert [name_of(function) for function in loaded].count("noop") == 1

    @pytest.mark.parametrize(
        ("functions", "message"),
        [
            ((takes_our_name,), r"takes_our_name is named plan_fires, as is one of Horarium's own"),
            ((noop, another_noop), r"noop and .*another_noop are both named noop"),
        ],
    )
    def test_a_name_that_is_taken_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, functions: tuple[object, ...], message: str
    ) -> None:
        """One of the two would never run."""
        name = module_with(monkeypatch, "team", *functions)
        with pytest.raises(InvalidSettings, match=message):
            load_job_activities([name], examples=False)
