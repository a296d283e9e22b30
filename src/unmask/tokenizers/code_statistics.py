"""What the codes of a learnt tokenizer stand for, and how well they describe events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.kinematics import wrap_phi
from unmask.networks.kinematic_features import Kinematics

#: Types that make up less of a code than this are not named in its description.
_NAMED_SHARE = 0.1
_QUANTILES = (0.16, 0.5, 0.84)


@dataclass(frozen=True)
class CodeStatistics:
    """What background positions got each code in training.

    A code's quantiles (16 %, median, 84 %) are those of its objects or, where most of its positions are METs, of those.

    Attributes
    ----------
    type_counts : (n_codes, 33) int64, positions by type: tags, and ``MET_TYPE``; the first (padding) is 0.
    pt_gev, eta, phi : (n_codes, 3) float32; phi may leave [-pi, pi] so that the three are in order. NaN for a code that
        no position got.
    """

    type_counts: npt.NDArray[np.int64]
    pt_gev: npt.NDArray[np.float32]
    eta: npt.NDArray[np.float32]
    phi: npt.NDArray[np.float32]

    @classmethod
    def measure(cls, kinematics: Kinematics, tokens: npt.NDArray[np.int32], n_codes: int) -> Self:
        """Gather the positions (n_events, sequence) by their tokens."""
        assert kinematics.types is not None, "measured on events, whose types are known"
        is_real = tokens != 0
        code, types = tokens[is_real].astype(np.int64) - 1, kinematics.types[is_real]
        width = MET_TYPE + 1
        type_counts = np.bincount(code * width + types, minlength=n_codes * width).reshape(n_codes, width)
        is_met_code = type_counts[:, MET_TYPE] > type_counts.sum(axis=1) / 2
        is_typical = (types == MET_TYPE) == is_met_code[code]
        by_code = np.argsort(code[is_typical], kind="stable")
        columns = [
            column[is_real][is_typical][by_code] for column in (kinematics.pt_mev / 1e3, kinematics.eta, kinematics.phi)
        ]
        ends = np.cumsum(np.bincount(code[is_typical], minlength=n_codes))
        quantiles = np.full((3, n_codes, 3), np.nan, np.float32)
        for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                pt, eta, phi = (column[start:end] for column in columns)
                # An angle has no quantiles; its distance from the mean direction has.
                mean_phi = np.angle(np.exp(1j * phi.astype(np.float64)).mean())
                quantiles[0, i], quantiles[1, i] = np.quantile(pt, _QUANTILES), np.quantile(eta, _QUANTILES)
                quantiles[2, i] = mean_phi + np.quantile(wrap_phi(phi - mean_phi), _QUANTILES)
        return cls(type_counts, *quantiles)

    def describe(self, token: int, *, brief: bool = False) -> str:
        """Words for a token from 1; brief ones name only its types and the middle 68 % of pT."""
        counts = self.type_counts[token - 1]
        n_positions = int(counts.sum())
        if not n_positions:
            return "a code that no background object had in training"
        names = {tag: one.name for tag, one in OBJECTS.items()} | {MET_TYPE: "MET"}
        share = counts / n_positions
        most_common = [int(t) for t in np.argsort(-counts, kind="stable")]
        named = most_common[:1] + [t for t in most_common[1:] if share[t] >= _NAMED_SHARE]
        is_met = share[MET_TYPE] > 0.5
        if brief:
            low, high = (f"{value:.0f}" for value in self.pt_gev[token - 1, [0, 2]])
            kinds = " or ".join(names[t] for t in named)
            return f"MET {low} to {high} GeV" if is_met else f"{kinds}, pT {low} to {high} GeV"
        kinds = " or ".join(f"{names[t]} ({share[t]:.0%})" for t in named)
        parts = [kinds, _range("MET" if is_met else "pT", self.pt_gev[token - 1], "{:.1f}", " GeV")]
        if not is_met:
            parts.append(_range("eta", self.eta[token - 1], "{:.2f}"))
        parts.append(_range("phi", self.phi[token - 1], "{:.2f}"))
        return f"{', '.join(parts)}; {n_positions / int(self.type_counts.sum()):.2%} of background"


def _range(name: str, quantiles: npt.NDArray[np.float32], pattern: str, unit: str = "") -> str:
    low, median, high = (pattern.format(value) for value in quantiles)
    return f"{name} {median} ({low} to {high}){unit}"


def reconstruction_report(
    true: Kinematics, decoded: Kinematics, tokens: npt.NDArray[np.int32], n_codes: int
) -> dict[str, float]:
    """Usage and perplexity of the codes, and root mean square errors of the features, over all real positions."""
    assert true.types is not None, "measured on events, whose types are known"
    is_met, is_object = true.types == MET_TYPE, (true.types != MET_TYPE) & (true.types != 0)
    share = np.bincount(tokens[tokens != 0], minlength=n_codes + 1)[1:] / max(int(np.count_nonzero(tokens)), 1)
    used = share[share > 0]

    def rms(error: npt.NDArray[np.floating[Any]]) -> float:
        return float(np.sqrt(np.mean(np.square(error, dtype=np.float64)))) if error.size else 0.0

    def log_ratio(mine: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.asarray(np.log(mine / theirs))

    o, m = is_object, is_met
    return {
        "n_events": float(len(tokens)),
        "usage": len(used) / n_codes,
        "perplexity": float(np.exp(-np.sum(used * np.log(used)))),
        "rms_energy_gev": rms(decoded.energy_mev[o] - true.energy_mev[o]) / 1e3,
        "rms_pt_gev": rms(decoded.pt_mev[o] - true.pt_mev[o]) / 1e3,
        "rms_eta": rms(decoded.eta[o] - true.eta[o]),
        "rms_phi": rms(wrap_phi(decoded.phi[o] - true.phi[o])),
        "rms_log_energy": rms(log_ratio(decoded.energy_mev[o], true.energy_mev[o])),
        "rms_log_pt": rms(log_ratio(decoded.pt_mev[o], true.pt_mev[o])),
        "rms_met_gev": rms(decoded.pt_mev[m] - true.pt_mev[m]) / 1e3,
        "rms_log_met": rms(log_ratio(decoded.pt_mev[m], true.pt_mev[m])),
        "rms_met_phi": rms(wrap_phi(decoded.phi[m] - true.phi[m])),
    }
