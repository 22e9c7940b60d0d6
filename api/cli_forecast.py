"""How the command line shows a forecast: a bar for each step."""

from datetime import datetime, timedelta

from rich.console import Console
from rich.markup import escape

from horarium.client import Forecast, HotSpot
from workflows.duration import describe_duration

BAR_WIDTH = 50
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_forecast(forecast: Forecast) -> None:
    """Show a forecast: its steps as bars, then the hot spots."""
    console = Console(highlight=False)
    step = describe_duration(timedelta(seconds=forecast.step_seconds))
    console.print(f"{forecast.fires} fires of {forecast.jobs} jobs, by {step} (UTC)")
    if not forecast.complete:
        until = "" if forecast.exact_until is None else f"; steps are exact until {_clock(forecast.exact_until)}"
        console.print(f"[yellow]{forecast.left_out} jobs were not counted, for want of time{until}[/]")
    most = max((each.fires for each in forecast.steps), default=0)
    width, hot = len(str(most)), {each.at for each in forecast.hot_spots}
    for each in forecast.steps:
        bar = f"[{'red' if each.at in hot else 'cyan'}]{draw_bar(each.fires, most=most)}[/]"
        console.print(f"{_clock(each.at)}  {each.fires:>{width}}  {bar}", soft_wrap=True)
    for spot in forecast.hot_spots:
        _print_hot_spot(spot, console, width=width)


def _print_hot_spot(spot: HotSpot, console: Console, *, width: int) -> None:
    console.print(f"\n[bold]{_clock(spot.at)}[/]: {spot.fires} fires of {spot.jobs} jobs")
    for job in spot.busiest:
        named = job.job_id if job.name == job.job_id else f"{job.job_id} ({job.name})"
        console.print(f"  {job.fires:>{width}}  {escape(named)}", soft_wrap=True)
    if spot.suggestion:
        console.print(f"  {escape(spot.suggestion)}", soft_wrap=True)


def draw_bar(value: int, *, most: int) -> str:
    """Draw a bar, to an eighth of a character; whatever is there shows."""
    if not value:
        return ""
    whole, rest = divmod(max(1, value * BAR_WIDTH * 8 // most), 8)
    return ("█" * whole + _EIGHTHS[rest]).rstrip()


def _clock(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M}"
