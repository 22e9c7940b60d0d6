"""Files that describe jobs, as ``horarium apply`` takes them: bodies of the API in YAML or JSON, each with its ``job_id``.

Owns where in a file a field stands, so that whatever is wrong with it is told as ``file:line``. A file is one job, a list of
them, a list under ``jobs``, or several of these as YAML documents. Every error of every file is found before anything is done.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import yaml
from pydantic import JsonValue

from api.cli_input import STANDARD_INPUT, BadInput, YamlLoader, read_bytes
from api.job_body import JobRequest, read_job
from api.problem import FieldError, InvalidRequest, describe_field_error, field_errors_of
from api.strict_json import escape_pointer, require_fit
from workflows.error import HorariumError, InvalidSchedule
from workflows.schedule_parser import Calendars

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})

MEMBER: Final = "jobs"

EXAMPLES: Final = "jobs.yaml"
"""In ``temporal-dev`` of a checkout, and among the data of an installed wheel."""

DISTRIBUTION: Final = "horarium-server"


@dataclass(frozen=True, kw_only=True)
class FileError:
    """One thing that is wrong in a file."""

    file: str
    line: int
    detail: str
    job_id: str = ""

    def __str__(self) -> str:
        about = f"{self.job_id}: " if self.job_id else ""
        return f"{self.file}:{self.line}: {about}{self.detail}"


class BadFiles(BadInput):
    """Files that cannot be applied, with everything that is wrong in all of them, a line each."""

    def __init__(self, errors: Iterable[FileError]) -> None:
        self.errors = tuple(errors)
        count = len(self.errors)
        listed = "\n".join(map(str, self.errors))
        super().__init__(f"{count} error{'s' if count > 1 else ''}; nothing was done\n{listed}")


@dataclass(frozen=True, kw_only=True)
class FiledJob:
    """A job as a file describes it."""

    file: str
    body: dict[str, JsonValue]
    lines: Mapping[str, int] = field(repr=False)
    """Line of each field, by JSON pointer."""

    @property
    def job_id(self) -> str:
        """Its id; empty where the file gives none."""
        found = self.body.get("job_id")
        return found if isinstance(found, str) else ""

    @property
    def place(self) -> str:
        """Where it begins."""
        return f"{self.file}:{self.lines['']}"

    def error(self, found: FieldError) -> FileError:
        """Say where in the file something is wrong: at the field, or at what it would stand in."""
        pointer = found.pointer or ""
        while pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        return FileError(
            file=self.file, line=self.lines[pointer], job_id=self.job_id, detail=describe_field_error(found)
        )


@dataclass(frozen=True)
class ReadFiles:
    """What files hold."""

    jobs: list[FiledJob] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)


def find_example_file() -> Path:
    """Find the example jobs of this checkout, or of this installation. Raises ``BadInput`` where neither has them."""
    in_checkout = Path(__file__).parents[1] / "temporal-dev" / EXAMPLES
    if in_checkout.is_file():
        return in_checkout
    for file in distribution(DISTRIBUTION).files or ():
        if file.name == EXAMPLES:
            return Path(str(file.locate())).resolve()
    raise BadInput(f"{EXAMPLES}: not installed; without example jobs it is --no-examples")


def read_job_files(names: Iterable[str]) -> ReadFiles:
    """Read files, and folders of them with all that is below, in the order of their names.

    Raises ``BadInput`` for one that is not there.
    """
    found = ReadFiles()
    for name in names:
        for file in _list_files(name):
            _read_file(file, found)
    places: dict[str, FiledJob] = {}
    for job in found.jobs:
        if not job.job_id:
            reason = "required in a file: applied again, it must be found again"
            found.errors.append(job.error(FieldError(pointer="/job_id", detail=reason)))
        elif (first := places.setdefault(job.job_id, job)) is not job:
            found.errors.append(job.error(FieldError(pointer="/job_id", detail=f"described at {first.place} too")))
    return found


def read_requests(found: ReadFiles, *, calendars: Calendars) -> list[tuple[FiledJob, JobRequest]]:
    """Understand the jobs of files. Raises ``BadFiles`` with all that is wrong, of reading them too."""
    errors, requests = list(found.errors), []
    for job in found.jobs:
        try:
            require_fit(job.body)
            requests.append((job, read_job(job.body, default_id=job.job_id or "-", calendars=calendars)))
        except (InvalidRequest, InvalidSchedule) as error:
            errors += map(job.error, field_errors_of(error))
    if errors:
        raise BadFiles(sorted(errors, key=lambda error: (error.file, error.line)))
    return requests


def error_in(job: FiledJob, error: HorariumError) -> FileError:
    """Say where in its file a job is refused."""
    found = field_errors_of(error)
    return job.error(found[0] if found else FieldError(pointer="", detail=str(error)))


def _list_files(name: str) -> Iterator[str]:
    path = Path(name)
    if name == STANDARD_INPUT or not path.is_dir():
        yield name
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        # A link to nothing is told of where it is read: what it stood for must not be taken for removed.
        is_there = file.is_file() or (file.is_symlink() and not file.exists())
        if file.suffix in SUFFIXES and is_there and not hidden:
            yield str(file)


def _read_file(name: str, found: ReadFiles) -> None:
    shown = "standard input" if name == STANDARD_INPUT else name
    text = read_bytes(name)
    # YAML takes all of JSON but its tabs, which stand in no string there.
    text = text.replace(b"\t", b" ") if name.endswith(".json") else text
    if not _is_text(text):
        found.errors.append(FileError(file=shown, line=1, detail="not UTF-8"))
        return
    try:
        loader = YamlLoader(text)
    except yaml.reader.ReaderError as error:
        # Before there are marks. The position is of a character where the text is, not of a byte.
        line = text.decode("utf-8-sig")[: error.position].count("\n") + 1
        found.errors.append(FileError(file=shown, line=line, detail=f"not YAML: {error.reason}"))
        return
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _add_jobs(loader.construct_document(node), node, found, shown)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        detail = f"not YAML: {getattr(error, 'problem', None) or 'unreadable'}"
        found.errors.append(FileError(file=shown, line=mark.line + 1 if mark else 1, detail=detail))
    except (ValueError, RecursionError) as error:
        found.errors.append(FileError(file=shown, line=1, detail=f"not YAML: {type(error).__name__}"))
    finally:
        loader.dispose()


def _is_text(text: bytes) -> bool:
    try:
        text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True


def _note_lines(
    node: yaml.Node, pointer: str, lines: dict[str, int], errors: list[FileError], file: str, depth: int = 0
) -> None:
    """Note the line of each field. Of what an alias repeats, the place of the first mention."""
    lines.setdefault(pointer, node.start_mark.line + 1)
    if depth > 100:
        return
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_lines(item, f"{pointer}/{index}", lines, errors, file, depth + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in seen:
                errors.append(FileError(file=file, line=line, detail=f"the key {name[:100]!r} occurs twice"))
            seen.add(name)
            inner = f"{pointer}/{escape_pointer(name)}"
            lines.setdefault(inner, line)
            _note_lines(value, inner, lines, errors, file, depth + 1)


def _add_jobs(document: object, node: yaml.Node, found: ReadFiles, file: str) -> None:
    if document is None:
        return
    listed = _find_member(node)
    if isinstance(document, dict) and listed is not None:
        for key, _ in node.value:
            if key.value != MEMBER:
                detail = f"there is no {str(key.value)[:100]!r} beside a list of {MEMBER}"
                found.errors.append(FileError(file=file, line=key.start_mark.line + 1, detail=detail))
        document, node = document[MEMBER], listed
    items = document if isinstance(document, list) else [document]
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item, own in zip(items, nodes, strict=True):
        if not isinstance(item, dict):
            found.errors.append(FileError(file=file, line=own.start_mark.line + 1, detail="a job is an object"))
            continue
        lines: dict[str, int] = {}
        _note_lines(own, "", lines, found.errors, file)
        found.jobs.append(FiledJob(file=file, body=item, lines=lines))


def _find_member(node: yaml.Node) -> yaml.SequenceNode | None:
    """Find the list of jobs in a document that has one by name."""
    members = node.value if isinstance(node, yaml.MappingNode) else []
    found = [value for key, value in members if key.value == MEMBER]
    return found[-1] if found and isinstance(found[-1], yaml.SequenceNode) else None
