"""Errors of unmask.

The library raises, it never prints; the command line turns each error into one message and its exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from signal import Signals

#: More choices are not listed.
_MAX_CHOICES = 24


class UnmaskError(Exception):
    """Root of all errors raised by unmask."""

    exit_code = 1


class UsageError(UnmaskError, ValueError):
    """An option or argument that cannot be used as given."""

    exit_code = 2


class MissingExtraError(UnmaskError, ImportError):
    """An optional dependency that this task needs is not installed."""

    exit_code = 2


class TrainingError(UnmaskError, RuntimeError):
    """A training that cannot go on: NaN or infinite loss, or a run folder that holds another run."""


class NotFittedError(UnmaskError, AttributeError):
    """A tokenizer or detector that is used before ``fit`` or ``load``."""


class BadDataError(UnmaskError, ValueError):
    """Input that is malformed, with the place, the value and what is accepted."""

    exit_code = 3

    def __init__(self, message: str, *, path: str | Path | None = None, where: str | None = None) -> None:
        place = ", ".join(str(part) for part in (path, where) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)


class ArtifactError(BadDataError):
    """A saved tokenizer, detector or events file that is damaged, tampered with or of another version."""


class Interrupted(BaseException):
    """A signal that ends the program: it passes through all blocks, which remove their scratch files."""

    def __init__(self, number: int) -> None:
        super().__init__(Signals(number).name)
        self.number = number


@contextmanager
def damage_named(
    path: Path,
    what: str,
    failures: type[Exception] | tuple[type[Exception], ...] = Exception,
    error: type[BadDataError] = BadDataError,
) -> Iterator[None]:
    """Turn what libraries raise on damaged bytes into an error that names the file and ``what`` is wrong."""
    try:
        yield
    except (UnmaskError, MemoryError):
        raise
    except failures as failure:
        str(path).encode()  # raises for a name that is not UTF-8
        reason = " ".join(str(failure).split())[:200] or type(failure).__name__
        raise error(f"{what}: damaged, truncated or of another kind ({reason})", path=path) from None


def nearest(value: str, choices: Iterable[str]) -> str:
    """List the choices, the nearest one first if there is one; of many only those that are near."""
    names = list(choices)
    close = closest(value, names)
    if len(names) > _MAX_CHOICES:
        near = list(dict.fromkeys([*([close] if close else []), *get_close_matches(value, names, n=4)]))
        if near:
            return f"did you mean {' or '.join(map(repr, near))}?"
        names = [*names[:_MAX_CHOICES], f"... ({len(names):,} in all)"]
    return f"{f'did you mean {close!r}? ' if close else ''}choose from {', '.join(names)}"


def closest(value: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a misspelled value resembles most; None if it resembles none."""
    by_lower = {name.lower(): name for name in choices}
    close = get_close_matches(value.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def require(module: str, extra: str) -> None:
    """Raise a clear error when ``module`` of the optional dependencies ``extra`` is missing."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed; run: pip install 'unmask[{extra}]'")
