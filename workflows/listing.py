"""How the workflow of a job keeps what the Temporal Web UI shows of it up to date. The durable part of ``visibility``."""

from temporalio import workflow

from workflows.contracts import SA_LAST_OUTCOME, SA_NEXT_FIRE, SA_STATE
from workflows.job import JobState
from workflows.logic import has_second_rules, has_third_rules
from workflows.visibility import is_first_success_amid_delay, job_search_attributes, standing_memo
from workflows.wake import is_held_up


def show_in_list(state: JobState) -> None:
    """Bring the Web UI's list up to date where it misleads: by how the last run ended, above all.

    What is set at continue-as-new belongs to the next run; a run that closes must say how its own fire went.
    """
    wanted, shown = job_search_attributes(state), workflow.info().typed_search_attributes
    fire, now = shown.get(SA_NEXT_FIRE), workflow.now()
    lacks_fire = wanted.get(SA_NEXT_FIRE) is not None and fire is None
    is_old_fire = fire is not None and fire <= now and is_held_up(state, now=now)
    shows_old_fire = is_old_fire and has_second_rules(state)
    misleads = any(shown.get(key) != wanted.get(key) for key in (SA_LAST_OUTCOME, SA_STATE))
    if has_third_rules(state) and is_first_success_amid_delay(state, shown=shown.get(SA_LAST_OUTCOME)):
        misleads = shown.get(SA_STATE) != wanted.get(SA_STATE)
    if lacks_fire or shows_old_fire or misleads:
        changes = [pair.key.value_set(pair.value) for pair in wanted]
        gone = [SA_NEXT_FIRE.value_unset()] if wanted.get(SA_NEXT_FIRE) is None else []
        workflow.upsert_search_attributes([*changes, *gone])


def show_standing(state: JobState) -> None:
    """Bring the memo up to date by which the mirror is compared with the job.

    A run that an earlier release has started shows none of it: its history knows no such command.
    """
    wanted, shown = standing_memo(state), workflow.memo()
    if wanted.keys() <= shown.keys() and any(shown[name] != value for name, value in wanted.items()):
        workflow.upsert_memo(wanted)
