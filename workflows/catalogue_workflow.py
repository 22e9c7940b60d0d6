"""The workflow that keeps what the workers of one task queue can run, in its memo. Nothing waits for it."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from horarium.catalogue import ANNOUNCE, CATALOGUE_MEMO, CATALOGUE_WORKFLOW
    from workflows.catalogue import FORGOTTEN_AFTER, Announcement, Catalogue, CatalogueInput, take_in, to_memo

ANNOUNCEMENTS_A_RUN = 50
"""Then it continues as new. About seven events each."""


@workflow.defn(name=CATALOGUE_WORKFLOW)
class CatalogueWorkflow:
    """The catalogue of one task queue."""

    @workflow.init
    def __init__(self, given: CatalogueInput | None = None) -> None:
        self._catalogue = given.catalogue if given else Catalogue()
        self._untold: list[Announcement] = []

    @workflow.run
    async def run(self, given: CatalogueInput | None = None) -> None:
        """Take in what workers tell, until none has told anything for months."""
        told = 0
        while told < ANNOUNCEMENTS_A_RUN:
            try:
                await workflow.wait_condition(lambda: bool(self._untold), timeout=FORGOTTEN_AFTER)
            except TimeoutError:
                return
            told += len(self._untold)
            self._take_in()
            workflow.upsert_memo({CATALOGUE_MEMO: to_memo(self._catalogue)})
        # Given again, because a memo that was changed in a run is not carried over to the next one.
        workflow.continue_as_new(
            CatalogueInput(catalogue=self._catalogue), memo={CATALOGUE_MEMO: to_memo(self._catalogue)}
        )

    @workflow.signal(name=ANNOUNCE)
    def announce(self, announcement: Announcement) -> None:
        """Hear what a worker can run."""
        self._untold.append(announcement)

    def _take_in(self) -> None:
        for announcement in self._untold:
            self._catalogue = take_in(self._catalogue, announcement, now=workflow.now())
        self._untold.clear()
