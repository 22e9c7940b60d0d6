"""What runs of a job that an earlier release began go on to do as it did, until they continue as new.

Pure. A replay of their histories must set the same timers, ask the planner the same, and start the same runs in the same order.
"""

from workflows.job import JobState


def has_second_rules(state: JobState) -> bool:
    """Say whether the workflow run that holds a state was begun under the second logic version, or a later one.

    Under the first, timers were set shortly before those of fires, an absent mirror was tried every ten seconds, what the
    catch-up lane had a place for started after the fires of its moment, and the planner was asked for jobs used up.
    """
    return state.logic >= 2


def has_third_rules(state: JobState) -> bool:
    """Say whether the workflow run that holds a state was begun under the third logic version, or a later one.

    Under those before, a plan that had grown old was asked for again in the task of a daily job's fire, whatever the zone, and a
    task that dispatched could wait for the planner and the mirror where it took more than one turn.
    """
    return state.logic >= 3


def has_fourth_rules(state: JobState) -> bool:
    """Say whether the workflow run that holds a state was begun under the fourth logic version, or a later one.

    Under those before, a job that was told several things at once went to its long sleep between any two of them, and set no
    timer to look whether more come. Nor were the last fires of a job asked for again, nor those of a zone without rules that are
    far away; a planner that had failed was not waited for before a long sleep; and no first look came when an alert was due.
    """
    return state.logic >= 4


def has_fifth_rules(state: JobState) -> bool:
    """Say whether the workflow run that holds a state was begun under the fifth logic version, or a later one.

    Under those before, carried fires that were missed were decided one by one, and one that no pause let be decided kept its
    job awake. A run that waited for another by its own overlap policy waited for all later ones of an ``allow`` job as well. A
    job without alert rules kept what it had expected. And while the planner did not answer, a job was deleted without asking
    once more what had passed, ran fires of backfills that it would catch up itself, and put aside fires whose number was told.
    """
    return state.logic >= 5
