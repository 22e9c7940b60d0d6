"""``If-Match`` and ``If-None-Match``, held against a job as it is."""

import pytest

from api.problem import PreconditionRequired, problem_of
from api.request import Precondition
from tests.records import job_record
from workflows.error import RevisionMismatch
from workflows.job import Lifecycle

FOUND = job_record(revision=3)
DELETED = job_record(revision=3, lifecycle=Lifecycle.DELETED)


@pytest.mark.parametrize(
    "precondition", [Precondition(given=True, revision=3), Precondition(given=True), Precondition()]
)
def test_the_revision_that_is_there_may_be_changed(precondition: Precondition) -> None:
    """Named, by the asterisk, or by saying nothing where nothing has to be said."""
    precondition.check(FOUND)


def test_another_revision_is_refused_and_so_is_what_is_not_there() -> None:
    """A job that was deleted has no revision to be changed; without If-Match it may be made anew."""
    with pytest.raises(RevisionMismatch, match="revision 3"):
        Precondition(given=True, revision=2).check(FOUND)
    for absent in (None, DELETED):
        with pytest.raises(RevisionMismatch):
            Precondition(given=True).check(absent)
        Precondition(required=True).check(absent)


def test_only_a_job_that_has_gone_on_may_have_done_so_by_a_request_with_a_key() -> None:
    """It alone knows, and is asked. One that is deleted answers nobody, and none has gone back."""
    seen = Precondition(given=True, revision=2)
    assert seen.may_be_repeated(FOUND, key="k")
    assert not seen.may_be_repeated(FOUND, key=None)
    assert not seen.may_be_repeated(DELETED, key="k")
    for other in (Precondition(given=True, revision=3), Precondition(given=True, revision=4), Precondition()):
        assert not other.may_be_repeated(FOUND, key="k")


def test_who_wants_to_create_a_job_finds_none() -> None:
    """One that was deleted is none; whoever is to name a revision has none to name."""
    for absent in (None, DELETED):
        Precondition(absent=True, required=True).check(absent)
    with pytest.raises(RevisionMismatch, match="there is a job of this id already") as caught:
        Precondition(absent=True, required=True).check(FOUND)
    assert problem_of(caught.value).status == 412


def test_an_installation_may_insist_on_it() -> None:
    """428, with the revision to send."""
    with pytest.raises(PreconditionRequired, match='"3"') as caught:
        Precondition(required=True).check(FOUND)
    assert problem_of(caught.value).status == 428
    Precondition(required=True, given=True).check(FOUND)
