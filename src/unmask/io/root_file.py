"""ROOT files: open them, find the tree with the events, read its branches.

TTree and RNTuple look alike from here: branches (fields) are found by name, whatever the nesting (``Jet/Jet.PT``) and
whatever stands between collection and column (``Jet_pt``, ``Jet.pt``, ``Jet:pt``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError, damage_named, nearest, require
from unmask.io import ROOT_MARKS, RootFormat


def detect_root_kind(path: Path) -> RootFormat:
    """Detect the format of a ROOT file from the branches of its trees."""
    with open_root(path) as file:
        trees = _trees(file, path)
        n_marks = {kind: max((_n_marks(tree, kind) for tree in trees.values()), default=0) for kind in ROOT_MARKS}
    best = max(n_marks, key=lambda kind: n_marks[kind])
    if not n_marks[best]:
        raise _no_tree_error(path, trees, ", ".join(ROOT_MARKS))
    return best


class Tree:
    """A TTree or RNTuple whose branches are found by their name alone."""

    def __init__(self, path: Path, tree: Any) -> None:
        self.path = path
        self._tree = tree
        self._names = {name.rpartition("/")[2]: name for name in reversed(tree.keys())}
        self._keys = {_spelling(name): key for name, key in self._names.items()}
        self._branches: dict[str, Any] = {}

    @property
    def n_entries(self) -> int:
        return int(self._tree.num_entries)

    @property
    def names(self) -> list[str]:
        return list(self._names)

    def __contains__(self, name: str) -> bool:
        return _spelling(name) in self._keys

    def read(self, name: str, start: int, stop: int) -> Any:
        """Entries ``start`` to ``stop`` of a branch, as an awkward array."""
        if name not in self:
            close = get_close_matches(name, self._names, n=3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise BadDataError(f"the branch {name} is missing{hint}", path=self.path)
        with damage_named(self.path, f"the branch {name}"):
            if name not in self._branches:
                self._branches[name] = self._tree[self._keys[_spelling(name)]]
            return self._branches[name].array(entry_start=start, entry_stop=stop, library="ak")


@dataclass(frozen=True)
class Entries:
    """Some consecutive entries of a tree; each branch is read once."""

    tree: Tree
    start: int
    stop: int
    #: Events (indices from ``start``) that cannot be used, by reason.
    unusable: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    _read: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, name: str) -> bool:
        return _branch_and_index(name)[0] in self.tree

    def values(self, name: str, if_empty: float = np.nan) -> npt.NDArray[Any]:
        """One number per event; of a branch of lists, ``NAME[0]`` is the first of each."""
        import awkward as ak

        branch, index = _branch_and_index(name)
        array = self._array(branch)
        if array.ndim == 2 and index is None:
            counts = ak.to_numpy(ak.num(array))
            if (counts > 1).any():
                event = int(np.argmax(counts > 1))
                message = f"{name} has {counts[event]} values; accepted: one per event, such as {name}[0], the first"
                raise BadDataError(message, path=self.tree.path, where=f"entry {self.start + event}")
        if array.ndim == 2:
            array = ak.fill_none(ak.firsts(array[:, index or 0 :]), if_empty)
        return self._numbers(name, array)

    def lists(
        self, name: str, like: npt.NDArray[np.int64] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Counts of numbers per event (as many as in ``like``, or it is an error), and all of them in one row."""
        import awkward as ak

        array = self._array(name)
        if array.ndim != 2:
            raise BadDataError(
                f"the branch {name} holds {array.type}; accepted: a list of numbers", path=self.tree.path
            )
        counts = ak.to_numpy(ak.num(array)).astype(np.int64)
        if like is not None and not np.array_equal(counts, like):
            event = int(np.flatnonzero(counts != like)[0])
            message = f"{name} has {counts[event]} values; accepted: {like[event]}, as in the other columns"
            raise BadDataError(message, path=self.tree.path, where=f"entry {self.start + event}")
        return counts, self._numbers(name, ak.flatten(array))

    def _array(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self.tree.read(name, self.start, self.stop)
        return self._read[name]

    def _numbers(self, name: str, array: Any) -> npt.NDArray[Any]:
        import awkward as ak

        with damage_named(self.tree.path, f"the branch {name} of type {array.type}"):
            numbers = np.asarray(ak.to_numpy(array))
        if numbers.dtype.kind not in "biuf" or numbers.ndim != 1:
            raise BadDataError(f"the branch {name} holds {array.type}; accepted: numbers", path=self.tree.path)
        return numbers


@contextmanager
def open_root(path: Path) -> Iterator[Any]:
    """Open a ROOT file with uproot for as long as the context lasts."""
    require("uproot", "root")
    import uproot

    with damage_named(path, "the file"):
        file = uproot.open({str(path): None})  # a mapping, so that a colon in the name is not taken for a tree
    with file:
        yield file


def _trees(file: Any, path: Path) -> dict[str, Tree | None]:
    """The trees of a file by name; None for one that cannot be read (metadata of an experiment's own classes)."""
    with damage_named(path, "the file"):
        classes = file.classnames(cycle=False)
    trees: dict[str, Tree | None] = {}
    for name, class_name in classes.items():
        if class_name.startswith(("TTree", "TNtuple")) or class_name.endswith("RNTuple"):
            try:
                with damage_named(path, name):
                    trees[name] = Tree(path, file[name])
            except BadDataError:
                trees[name] = None
    return trees


def find_tree(file: Any, path: Path, name: str) -> Tree | None:
    """The tree of this name; None if there is none that can be read."""
    return _trees(file, path).get(name)


def pick_tree(file: Any, path: Path, kind: RootFormat, name: str | None = None) -> Tree:
    """Return the tree called ``name``, by default the only one that holds events of this format."""
    trees = _trees(file, path)
    if name is not None and name not in trees:
        raise UsageError(f"{path}: no tree {name!r}; {nearest(name, trees)}")
    fitting = [name] if name is not None else [one for one, tree in trees.items() if _n_marks(tree, kind)]
    if len(fitting) > 1:
        raise UsageError(f"{path}: several trees hold events, pick one with the option tree: {', '.join(fitting)}")
    tree = trees[fitting[0]] if fitting else None
    if tree is None:
        raise _no_tree_error(path, trees, kind)
    return tree


def _n_marks(tree: Tree | None, kind: RootFormat) -> int:
    return 0 if tree is None else sum(mark in tree for mark in ROOT_MARKS[kind])


def _no_tree_error(path: Path, trees: Mapping[str, Tree | None], accepted: str) -> BadDataError:
    names = ", ".join(f"{name} (unreadable)" if tree is None else name for name, tree in trees.items()) or "none"
    return BadDataError(f"no tree with events of a known format; trees: {names}; accepted: {accepted}", path=path)


def _spelling(name: str) -> str:
    return name.replace(".", "_").replace(":", "_")


def _branch_and_index(name: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(.+)\[(\d+)\]", name)
    return (match[1], int(match[2])) if match else (name, None)
