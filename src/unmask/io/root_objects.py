"""Events of ROOT files: from the branches of a tree to selected objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError, nearest
from unmask.events.build import FlatEvents, to_mev
from unmask.events.columns import Names
from unmask.events.event_set import OBJECT_COLUMNS
from unmask.events.objects import LEPTON_TAGS, OBJECTS, TAGS, Unit, tags_of
from unmask.io import RootFormat
from unmask.io.record import FileRecord
from unmask.io.root_file import Entries, find_tree, open_root, pick_tree
from unmask.io.selections import (
    DEFAULT_KINDS,
    JET_LIKE_KINDS,
    OBJECT_KINDS,
    ObjectKind,
    ObjectSelection,
    SelectionTable,
    selection_table,
)
from unmask.io.source import Chunk, ReadOptions, Source
from unmask.kinematics import delta_r

AnyArray = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Masses in MeV. Files round that of a light particle, or leave it out; taus and jets bring their own.
_MASS_MEV = {"electron": 0.511, "muon": 105.66, "photon": 0.0}
#: Tags of a negative and a positive lepton.
_LEPTON_TAGS = dict(zip(("electron", "muon"), LEPTON_TAGS, strict=True))


@dataclass(frozen=True)
class Layout:
    """Where a format keeps what we read."""

    unit: Unit
    #: Prefix of the name of a column, ``{"jet": "Jet_", ...}``.
    prefixes: Mapping[ObjectKind, str]
    #: Names of pt, eta, phi, mass and charge.
    columns: Mapping[str, str]
    event_id: str
    #: Branch of the generator weight; weights are 1 where it is missing.
    weight: str
    #: Branches of a tree "Runs" with the sum of that weight, of which a file has one or none.
    sums_of_weights: Sequence[str] = field(default=(), kw_only=True)
    #: Name, magnitude and azimuth of the missing transverse energy of some entries.
    met: Callable[[Entries, SelectionTable], tuple[str, AnyArray, AnyArray]]
    #: Quantities for the selection beyond the plain branches: one branch that they need, and values per object.
    derived: Mapping[tuple[ObjectKind, str], tuple[str, Callable[[Entries], AnyArray]]] = field(default_factory=dict)
    #: Branches of further columns that are read wherever a file has them.
    further: Mapping[str, str] = field(default_factory=dict)
    b_tag_is_bits: bool = False
    #: A b-tagger's score below this, or NaN, means that it was not run on the jet.
    min_b_score: float = -np.inf
    isolation_is_absolute: bool = False


@dataclass(frozen=True)
class Objects:
    """Objects of one kind of many events, flat; ``event`` is the index of the event, rising."""

    event: IntArray
    tag: npt.NDArray[np.uint8]
    energy_mev: FloatArray
    pt_mev: FloatArray
    eta: FloatArray
    phi: FloatArray

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> Objects:
        return Objects(**{name: getattr(self, name)[is_kept] for name in ("event", *OBJECT_COLUMNS)})


def stream_root(source: Source, kind: RootFormat, layout: Layout) -> Iterator[Chunk]:
    """Yield the events of a file, ``chunk_events`` entries at a time."""
    if source.options.unit not in (None, layout.unit):
        raise UsageError(f"{source.path}: unit {source.options.unit}; {kind} files are in {layout.unit}, always")
    table = selection_table(kind, source.options.selection)
    with open_root(source.path) as file:
        tree = pick_tree(file, source.path, kind, source.options.tree)
        first, last = source.options.entries or (0, tree.n_entries)
        last = min(last, tree.n_entries)
        for start in range(first, last, source.options.chunk_events):
            entries = Entries(tree, start, min(start + source.options.chunk_events, last))
            # Numbers that are not finite stay as they are, for the checks to find.
            with np.errstate(all="ignore"):
                events = _flat_events(entries, layout, table, source)
            source.progress((entries.stop - first) / (last - first))
            yield Chunk(events, "entry", events.row)


def select_objects(
    entries: Entries,
    layout: Layout,
    table: SelectionTable,
    record: FileRecord,
    kinds: Collection[str] = DEFAULT_KINDS,
) -> dict[ObjectKind, Objects]:
    """Read the objects of some entries and keep those that the table asks for."""
    selected: dict[ObjectKind, Objects] = {}
    for kind in (one for one in OBJECT_KINDS if one in kinds):
        objects = _select(entries, layout, kind, table[kind], record)
        for other, others in selected.items():
            decides = other if kind == "jet" and other in JET_LIKE_KINDS else kind
            objects = objects.keep(~_is_near(objects, others, table[decides].min_delta_r))
        if kind == "jet" or table[kind].min_delta_r:
            record.count_objects(kind, "distance to other objects", len(objects.event))
        selected[kind] = objects
    return selected


def _flat_events(entries: Entries, layout: Layout, table: SelectionTable, source: Source) -> FlatEvents:
    n, record = len(entries), source.record
    record.count_events("in file", n)
    kinds = {OBJECTS[tag].family for tag in tags_of(source.options.objects or DEFAULT_KINDS)}
    objects = select_objects(entries, layout, table, record, kinds).values()
    event = np.concatenate([one.event for one in objects])
    order = np.argsort(event, kind="stable")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in objects])[order] for name in OBJECT_COLUMNS
    }
    record.used["MET"], *met_and_phi = layout.met(entries, table)
    met, met_phi = (values.astype(np.float64) for values in met_and_phi)
    weight, record.used["weight"] = weights_of(entries, layout, source.options.weight)
    further = {name: branch for name, branch in layout.further.items() if branch in entries}
    named = source.further(lambda name: name in further or name in entries, entries.tree.names)
    further |= {name: name for name in named if name not in further}
    is_usable = np.ones(n, np.bool_)
    for what, events in entries.unusable.items():
        error = source.error(f"{what} is NaN; accepted: a number", f"entry {entries.start + events[0]}")
        source.bad.add("bad quality", error, len(events))
        is_usable[events] = False
    return FlatEvents(
        row=np.arange(entries.start, entries.stop, dtype=np.int64),
        event_id=entries.values(layout.event_id, if_empty=-1).astype(np.int64),
        process_names=Names.constant(source.default_process, n),
        weight=weight,
        met_mev=to_mev(met, layout.unit),
        met_phi=met_phi,
        n_objects=np.bincount(event, minlength=n).astype(np.int64),
        further={name: entries.values(branch) for name, branch in further.items()},
        **columns,
    ).keep(is_usable)


def weights_of(entries: Entries, layout: Layout, branch: str | None) -> tuple[FloatArray, str]:
    """Weights of entries, and what they are: those of a branch, by default the format's own where a file has it."""
    if branch and branch not in entries:
        weights = [name for name in entries.tree.names if "weight" in name.lower()]
        hint = nearest(branch, weights) if weights else "no branch is called a weight"
        raise BadDataError(f"the branch {branch} of the weights is missing; {hint}", path=entries.tree.path)
    branch = branch or (layout.weight if layout.weight in entries else None)
    weight = np.ones(len(entries)) if branch is None else entries.values(branch).astype(np.float64)
    return weight, branch or "1 for all events"


def sum_of_weights(path: Path, kind: RootFormat, layout: Layout, options: ReadOptions) -> tuple[float, str]:
    """Sum of the weights of all generated events, and where it is from; see :func:`unmask.io.read.sum_of_weights`."""
    with open_root(path) as file:
        runs = None if options.weight not in (None, layout.weight) else find_tree(file, path, "Runs")
        for name in layout.sums_of_weights if runs else ():
            if runs is not None and name in runs:
                return float(np.sum(runs.read(name, 0, runs.n_entries))), f"Runs.{name}"
        tree, total, used = pick_tree(file, path, kind, options.tree), 0.0, ""
        for start in range(0, tree.n_entries, options.chunk_events):
            entries = Entries(tree, start, min(start + options.chunk_events, tree.n_entries))
            weight, used = weights_of(entries, layout, options.weight)
            total += float(weight.sum())
    return total, used


def _select(
    entries: Entries, layout: Layout, kind: ObjectKind, selection: ObjectSelection, record: FileRecord
) -> Objects:
    counts, pt = entries.lists(layout.prefixes[kind] + layout.columns["pt"])

    def column(name: str) -> FloatArray:
        if (kind, name) in layout.derived:
            return layout.derived[kind, name][1](entries).astype(np.float64)
        return entries.lists(layout.prefixes[kind] + name, like=counts)[1].astype(np.float64)

    def available(limits: Mapping[str, float]) -> list[str]:
        """The quantities that the file has; the first, to be missed by name, if it has none."""
        needs = {name: layout.derived.get((kind, name), (layout.prefixes[kind] + name,))[0] for name in limits}
        return [name for name in limits if needs[name] in entries] or list(limits)[:1]

    pt_mev = to_mev(pt.astype(np.float64), layout.unit)
    eta, phi = column(layout.columns["eta"]), column(layout.columns["phi"])
    # Written so that NaN passes: an event with one is reported, not quietly stripped of an object.
    is_kept = np.ones(len(pt), np.bool_)
    record.count_objects(kind, "in file", len(pt))

    def require(condition: npt.NDArray[np.bool_], step: str) -> None:
        is_kept[~condition] = False
        record.count_objects(kind, step, int(np.count_nonzero(is_kept)))

    require(~(pt_mev <= selection.min_pt_gev * 1e3), f"pT > {selection.min_pt_gev:g} GeV")
    require(~(np.abs(eta) >= selection.max_abs_eta), f"|eta| < {selection.max_abs_eta:g}")

    def quality(name: str) -> FloatArray:
        """A column that is cut on; events where it is NaN for an object that would else be kept cannot be used."""
        values = column(name)
        if (is_unknown := np.isnan(values) & is_kept).any():
            entries.unusable[f"{name} of {kind}"] = np.unique(np.repeat(np.arange(len(counts)), counts)[is_unknown])
        return values

    for name in available(selection.isolation)[:1]:
        isolation = quality(name) / pt if layout.isolation_is_absolute else quality(name)
        require(isolation <= selection.isolation[name], f"{name} <= {selection.isolation[name]:g}")
    for name in available(selection.identification)[:1]:
        require(quality(name) >= selection.identification[name], f"{name} >= {selection.identification[name]:g}")

    tag = np.full(len(pt), TAGS[kind], np.uint8)
    if kind in _LEPTON_TAGS:
        negative, positive = _LEPTON_TAGS[kind]
        tag = np.where(column(layout.columns["charge"]) > 0, positive, negative).astype(np.uint8)
    elif kind == "jet":
        is_open = np.ones(len(pt), np.bool_)  # no tagger has given a score yet
        for name in available(selection.b_tag):
            score, limit = column(name), selection.b_tag[name]
            is_b = (score.astype(np.int64) & int(limit)) != 0 if layout.b_tag_is_bits else score > limit
            tag[is_open & is_b] = TAGS["b-jet"]
            if is_open.any():
                record.use("b-tag", f"{name} & {limit:g}" if layout.b_tag_is_bits else f"{name} > {limit:g}")
            is_open &= ~(score >= layout.min_b_score)
            if not is_open.any():
                break
    mass_mev = _MASS_MEV[kind] if kind in _MASS_MEV else to_mev(column(layout.columns["mass"]), layout.unit)
    energy_mev = np.hypot(pt_mev * np.cosh(eta), np.maximum(mass_mev, 0))
    event = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return Objects(event, tag, energy_mev, pt_mev, eta, phi).keep(is_kept)


def _is_near(objects: Objects, others: Objects, min_delta_r: float) -> npt.NDArray[np.bool_]:
    """Whether each object has one of the others of its event within ``min_delta_r``."""
    first = np.searchsorted(others.event, objects.event, side="left")
    last = np.searchsorted(others.event, objects.event, side="right")
    n_pairs = last - first
    one = np.repeat(np.arange(len(first)), n_pairs)
    other = np.arange(len(one)) - np.repeat(np.cumsum(n_pairs) - n_pairs, n_pairs) + first[one]
    distance = delta_r(objects.eta[one] - others.eta[other], objects.phi[one] - others.phi[other])
    is_near = distance < min_delta_r
    return np.bincount(one[is_near], minlength=len(first)) > 0
