"""Look-up table: a token is the type of an object and the bins of its pT, eta and phi. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.errors import UsageError, nearest
from unmask.events.event_set import EventSet
from unmask.events.objects import MIN_PT_MEV, TAG_LIMIT, ObjectType
from unmask.kinematics import wrap_phi
from unmask.parameters import at_least
from unmask.tokenizers.base import Tokenizer
from unmask.tokenizers.bins import (
    PUBLISHED_EDGES,
    VARIABLE_NAMES,
    Bin,
    count_edges,
    equal_width_edges,
    explicit_edges,
    phi_edges,
    published_edges,
    quantile_edges,
)

Feature = Literal["type", "charge", "pt", "eta", "phi"]
FEATURES: tuple[Feature, ...] = get_args(Feature)

#: Ways to choose bin edges by name; explicit edges are a mapping instead.
EDGES = ("quantile", "equal-width", *(f"published:{study}" for study in PUBLISHED_EDGES))


@dataclass(eq=False, repr=False)
class LookupTableTokenizer(Tokenizer):
    """Tokens from ``n_bins`` bins per variable: objects in their slots, then MET, then the direction of MET.

    With all features, a particle's token is ``N^3 (tag-1) + N^2 (b_pT-1) + N (b_eta-1) + b_phi``, the MET's
    ``7 N^3 + b_MET`` and that of its direction ``7 N^3 + N + b_phi``, bins counted from 1: ``7 N^3 + 2 N`` codes.
    Features that are left out take no part in the count.

    Bins include their lower edge; the first and the last one are open. phi has equal bins on [-pi, pi).

    Parameters
    ----------
    n_bins
        Bins per variable, 2 or more.
    edges
        Bin edges of pT, eta and MET:

        - ``"quantile"``: equal occupancy in the training events, each event and object counted once whatever its
          weight;
        - ``"equal-width"``: equal width in log pT, eta and log MET between the 0.1% and 99.9% quantiles of the
          training events (a MET of exactly 0 has no logarithm and is left out of them);
        - ``"published:four-top"``, ``"published:gluino"``: the published edges, for 4, 5 and 6 bins;
        - a mapping with the ``n_bins - 1`` inner edges of ``pt_mev``, ``abs_eta`` (or ``eta``) and ``met_mev``.
    features
        Encoded features of an object. Without ``"charge"`` particles and antiparticles share a token; without
        ``"type"`` charges -1, 0 and +1 remain.
    met, met_phi
        Whether the sequence has a MET token and one for its direction.
    signed_eta
        Bins of eta instead of \\|eta\\|.

    Examples
    --------
    >>> tokenizer = LookupTableTokenizer(4, edges="published:four-top").fit(EventSet.empty())
    >>> tokenizer.n_codes, tokenizer.sequence_length
    (456, 20)
    >>> tokenizer.describe(86)
    'b-jet, pT 46.6 to 83.3 GeV, |eta| 0.43 to 0.90, phi -1.57 to 0.00'
    >>> tokenizer.describe(86, brief=True)
    'b-jet, pT 46.6 to 83.3 GeV'
    """

    kind = "lookup-table"

    n_bins: Annotated[int, at_least(2)] = 4
    _: KW_ONLY
    edges: str | Mapping[str, Sequence[float]] = "quantile"
    features: Sequence[Feature] = FEATURES
    met: bool = True
    met_phi: bool = True
    signed_eta: bool = False

    @property
    def n_codes(self) -> int:
        return self.n_object_codes + self.n_bins * (self.met + self.met_phi)

    @property
    def n_object_codes(self) -> int:
        n_codes: int = len(self._object_classes) * self.n_bins ** len(self.object_columns)
        return n_codes

    @property
    def sequence_length(self) -> int:
        return self.schema_.max_objects + self.met + self.met_phi

    @property
    def event_positions(self) -> dict[int, str]:
        names = {"met_mev": "MET", "met_phi": "MET phi"}
        return {self.schema_.max_objects + i: names[column] for i, column in enumerate(self.event_columns)}

    def check(self) -> None:
        super().check()
        if not self.features:
            raise UsageError(f"features is {self.features!r}; expected some of {', '.join(FEATURES)}")
        if self.n_codes > np.iinfo(np.int32).max:
            raise UsageError(f"{self.n_bins} bins make {self.n_codes:,} codes, more than a token can count; use fewer")
        self._given_edges()

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:  # noqa: ARG002
        edges = self._given_edges()
        if edges is None:
            compute = quantile_edges if self.edges == "quantile" else equal_width_edges
            edges = {name: compute(name, _values(train, name), self.n_bins) for name in self._variables}
        self.edges_ = edges

    def bins_table(self) -> list[Bin]:
        self.check_fitted()
        columns = [*self.object_columns, *self.event_columns]
        return [self._bin(name, number) for name in columns for number in range(1, self.n_bins + 1)]

    @property
    def object_columns(self) -> list[str]:
        """The binned columns of an object, in the order of the digits of its token."""
        columns = {"pt": "pt_mev", "eta": "eta" if self.signed_eta else "abs_eta", "phi": "phi"}
        return [column for feature, column in columns.items() if feature in self.features]

    @property
    def event_columns(self) -> list[str]:
        """The binned columns of an event, in the order of their tokens."""
        return [name for name, is_on in (("met_mev", self.met), ("met_phi", self.met_phi)) if is_on]

    @property
    def _variables(self) -> list[str]:
        """The columns whose bins need edges."""
        return [name for name in (*self.object_columns, *self.event_columns) if name in VARIABLE_NAMES]

    @property
    def _object_classes(self) -> dict[str, tuple[int, ...]]:
        return _classes(self.schema_.types, "type" in self.features, "charge" in self.features)

    @property
    def class_of_tag(self) -> npt.NDArray[np.int32]:
        """(32,): number of the class of objects, with tokens of its own, that each tag belongs to."""
        classes = np.zeros(TAG_LIMIT, np.int32)
        for number, tags in enumerate(self._object_classes.values()):
            classes[list(tags)] = number
        return classes

    def _given_edges(self) -> dict[str, npt.NDArray[np.float32]] | None:
        """Explicit or published edges; None when they are to be computed."""
        given: Mapping[str, Sequence[float]]
        if not isinstance(self.edges, str):
            given = self.edges
        elif self.edges not in EDGES:
            raise UsageError(f"unknown edges {self.edges!r}; {nearest(self.edges, EDGES)}")
        elif self.edges.startswith("published:"):
            given = published_edges(self.edges.removeprefix("published:"), self.n_bins)
        else:
            return None
        for name in given:
            if name not in VARIABLE_NAMES:
                raise UsageError(f"edges of unknown {name!r}; {nearest(str(name), self._variables)}")
        for name in self._variables:
            if name not in given:
                raise UsageError(f"edges of {name} are not given, only of {', '.join(given) or 'nothing'}")
        edges = {name: explicit_edges(name, given[name], self.n_bins) for name in self._variables}
        if edges.get("pt_mev", [MIN_PT_MEV])[0] < MIN_PT_MEV:
            raise UsageError(
                f"edges of pt_mev begin at {edges['pt_mev'][0]:.6g}; give them in MeV, not in GeV or log MeV"
            )
        return edges

    def _encode(self, events: EventSet) -> npt.NDArray[np.int32]:
        tokens = np.zeros((len(events), self.sequence_length), np.int32)
        is_object = events.is_object
        code = self.class_of_tag[events.tag[is_object]]  # (n_objects of all events,)
        for name in self.object_columns:
            code *= self.n_bins
            code += self._bins(events, name)
        tokens[:, : events.max_objects][is_object] = code + 1
        for i, name in enumerate(self.event_columns):
            tokens[:, events.max_objects + i] = self.n_object_codes + i * self.n_bins + self._bins(events, name) + 1
        return tokens

    def _bins(self, events: EventSet, name: str) -> npt.NDArray[np.int32]:
        """Bins of a column, counted from 0."""
        values = _values(events, name)
        if name in VARIABLE_NAMES:
            return count_edges(self.edges_[name], values)
        # In single precision, like the values, so that -pi is a lower edge; +pi, one bin too far, comes round to it.
        edges = phi_edges(self.n_bins).astype(np.float32)
        return (count_edges(edges, wrap_phi(values)) + (self.n_bins - 1)) % self.n_bins

    def _describe(self, token: int, brief: bool) -> str:
        code = token - 1
        if code >= self.n_object_codes:
            i, number = divmod(code - self.n_object_codes, self.n_bins)
            return str(self._bin(self.event_columns[i], number + 1))
        bins: list[Bin] = []
        for name in reversed(self.object_columns):
            code, number = divmod(code, self.n_bins)
            if name == "pt_mev" or not brief:
                bins.insert(0, self._bin(name, number + 1))
        return ", ".join([list(self._object_classes)[code], *map(str, bins)])

    def _bin(self, name: str, number: int) -> Bin:
        if name not in VARIABLE_NAMES:
            low, high = phi_edges(self.n_bins)[number - 1 : number + 1]
            return Bin("phi" if name == "phi" else "MET phi", number, float(low), float(high), "")
        label, unit, scale = VARIABLE_NAMES[name]
        edges = [None, *(float(edge) / scale for edge in self.edges_[name]), None]
        return Bin(label, number, edges[number - 1], edges[number], unit)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return dict(self.edges_)

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:
        super().restore(arrays, metadata)
        self.edges_ = {name: explicit_edges(name, arrays[name], self.n_bins) for name in self._variables}


def _classes(types: Sequence[ObjectType], by_type: bool, by_charge: bool) -> dict[str, tuple[int, ...]]:
    """Classes of objects with tokens of their own, by label, with the tags in them."""
    classes: dict[str, tuple[int, ...]] = {}
    if by_type:
        for one in types:
            alike = [two for two in types if (two.family, two.is_b_jet) == (one.family, one.is_b_jet)]
            shown = [one] if by_charge else alike
            classes[" or ".join(two.name for two in shown)] = tuple(two.tag for two in shown)
    elif by_charge:
        for charge in sorted({one.charge for one in types}):
            sign = f"{charge:+d}" if charge else "0"
            classes[f"object of charge {sign}"] = tuple(one.tag for one in types if one.charge == charge)
    else:
        classes["object"] = tuple(one.tag for one in types)
    return classes


def _values(events: EventSet, name: str) -> npt.NDArray[np.float32]:
    """A column of the events, or of the objects of all events, one after the other and without padding."""
    values: npt.NDArray[np.float32] = getattr(events, name.removeprefix("abs_"))
    if values.ndim == 2:
        values = values[events.is_object]
    return np.abs(values) if name.startswith("abs_") else values
