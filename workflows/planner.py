"""What a job has missed and what comes next, asked of the fire-time calculator.

Pure. It runs as a local activity, never in workflow code: zone rules and croniter change between releases, and a replay
must not notice. A month of missed minutes is a survey of ranges, not a list.
"""

from datetime import UTC, datetime, timedelta

from workflows.fire_exclusion import excludes_anything
from workflows.fire_times import jitter_offset, next_fires, shortest_gap, survey_fires
from workflows.job import CatchUpPolicy, FirePlan, PlanRequest, SurveyRequest, Tuning
from workflows.policies import decide_grace, newest_needed
from workflows.schedule import FireRange, FireSurvey, IntervalRule, OneOffRule, Schedule

JUST_BEFORE = timedelta(microseconds=1)

SURVEYED_FIRES = 10
"""Newest fires that a survey names. Those between nominal and target time are hardly ever more than one."""

END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def make_plan(request: PlanRequest, *, tuning: Tuning) -> FirePlan:
    """Plan a job from its high-water mark.

    Fires whose target is more than the grace before ``request.now`` are surveyed as missed, those older than the lookback
    apart and first; then the next ones are listed. Work is bounded: where one call cannot survey all, the answer says so
    and the caller asks again.

    Raises:
        InvalidSchedule: the schedule or its zone means nothing to this release.
    """
    schedule, job_id = request.definition.schedule, request.job_id
    grace = decide_grace(request.definition, shortest_gap=shortest_gap(schedule, job_id=job_id))
    offset = jitter_offset(schedule, job_id=job_id)
    plan = FirePlan(
        revision=request.revision,
        planned_at=request.now,
        grace=grace,
        offset=offset,
        tuning=tuning,
        complete=False,
        stalled=request.stalled,
        is_lasting=not depends_on_zone(schedule),
    )
    last_missed = _last_missed(request, grace=grace, offset=offset)
    last_too_old = min(last_missed, request.now - request.definition.lookback)

    if request.so_far is None and request.after < last_too_old:
        too_old = survey_fires(schedule, job_id=job_id, after=request.after, until=last_too_old, newest=0)
        if too_old.ranges or too_old.through < last_too_old:
            return plan.model_copy(update={"too_old": too_old})

    missed = _survey_missed(request, after=max(request.after, last_too_old), until=last_missed)
    if missed is not None and missed.through < last_missed:
        return plan.model_copy(update={"missed": missed})
    return _list_upcoming(
        plan.model_copy(update={"missed": missed, "complete": True}), request, after=max(request.after, last_missed)
    )


def depends_on_zone(schedule: Schedule) -> bool:
    """Say whether rules of a zone, which may change before its fires come, have a say in a schedule."""
    if schedule.timezone == "UTC":
        return False
    rule = schedule.rule
    is_timed = isinstance(rule, IntervalRule) or (isinstance(rule, OneOffRule) and rule.at is not None)
    return not is_timed or schedule.business_days is not None or excludes_anything(schedule)


def make_survey(request: SurveyRequest) -> FireSurvey:
    """Survey the fires between two moments; the answer says how far it came, and the caller asks again from there.

    Raises:
        InvalidSchedule: the schedule or its zone means nothing to this release.
    """
    return survey_fires(
        request.schedule, job_id=request.job_id, after=request.after, until=request.until, newest=SURVEYED_FIRES
    )


def _last_missed(request: PlanRequest, *, grace: timedelta, offset: timedelta) -> datetime:
    """Say up to which nominal time fires are missed: beyond the grace or, after a stall or a pause, within it too.

    Under ``RUN_ALL`` the newest of them stays live; it need not wait until all the others have been caught up.
    """
    beyond_grace = request.now - grace - offset - JUST_BEFORE
    if request.missed_until is not None:
        beyond_grace = max(beyond_grace, request.missed_until - offset)
    if not request.stalled:
        return beyond_grace
    due = request.now - offset - JUST_BEFORE
    if request.definition.missed_window is not CatchUpPolicy.RUN_ALL:
        return due
    start = max(request.after, beyond_grace)
    live = survey_fires(request.definition.schedule, job_id=request.job_id, after=start, until=due, newest=1).newest
    return live[0].nominal - JUST_BEFORE if live else beyond_grace


def _survey_missed(request: PlanRequest, *, after: datetime, until: datetime) -> FireSurvey | None:
    start = request.so_far.through if request.so_far is not None else after
    if start >= until:
        return request.so_far
    needed = newest_needed(request.definition)
    found = survey_fires(request.definition.schedule, job_id=request.job_id, after=start, until=until, newest=needed)
    return found if request.so_far is None else _join(request.so_far, found, newest=needed)


def _join(earlier: FireSurvey, later: FireSurvey, *, newest: int) -> FireSurvey:
    ranges = list(earlier.ranges)
    for each in later.ranges:
        if ranges and ranges[-1].excluded_by == each.excluded_by:
            ranges[-1] = ranges[-1].model_copy(update={"last": each.last, "count": ranges[-1].count + each.count})
        else:
            ranges.append(each)
    fires = (*earlier.newest, *later.newest)[-newest:] if newest else ()
    return FireSurvey(ranges=tuple(ranges), newest=fires, through=later.through)


def _list_upcoming(plan: FirePlan, request: PlanRequest, *, after: datetime) -> FirePlan:
    schedule, job_id = request.definition.schedule, request.job_id
    fires = tuple(next_fires(schedule, job_id=job_id, after=after, count=plan.tuning.batch_size))
    is_full = len(fires) == plan.tuning.batch_size
    if not excludes_anything(schedule):
        return plan.model_copy(update={"upcoming": fires, "exhausted": not is_full})

    until = fires[-1].nominal if is_full else END_OF_TIME
    survey = survey_fires(schedule, job_id=job_id, after=after, until=until, newest=0)
    # Fewer fires than asked for may be all that is left, or all that one call finds among so many excluded ones.
    exhausted = not is_full and not next_fires(schedule, job_id=job_id, after=survey.through, count=1, excluded=True)
    return plan.model_copy(
        update={
            "upcoming": fires,
            "excluded": _excluded(survey.ranges),
            "exhausted": exhausted,
            "ask_again_at": None if exhausted or survey.through == until else survey.through + plan.offset,
        }
    )


def _excluded(ranges: tuple[FireRange, ...]) -> tuple[FireRange, ...]:
    return tuple(each for each in ranges if each.excluded_by is not None)
