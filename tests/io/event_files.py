"""Writers for every kind of file that the text, array and Parquet readers read, good or bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from unmask.events.build import FlatEvents, to_event_set
from unmask.events.columns import Names
from unmask.events.event_set import EventSet
from unmask.io.parquet import write_events

TAGS = {"j": 1, "b": 2, "e-": 3, "e+": 4, "m-": 5, "mu-": 5, "m+": 6, "mu+": 6, "g": 7}


@dataclass(frozen=True)
class Obj:
    symbol: str
    energy: float
    pt: float
    eta: float
    phi: float


@dataclass(frozen=True)
class Event:
    event_id: int
    process: str
    weight: float
    met: float
    met_phi: float
    objects: tuple[Obj, ...]

    def with_object(self, index: int = 1, **changes: object) -> Event:
        changed = list(self.objects)
        changed[index] = replace(changed[index], **changes)  # type: ignore[arg-type]
        return replace(self, objects=tuple(changed))


def example_events(n_events: int = 10, seed: int = 0) -> list[Event]:
    """Good events of 3 to 9 objects, in MeV, with few digits, as a file would have them."""
    rng = np.random.default_rng(seed)

    def number(low: float, high: float) -> float:
        return float(f"{rng.uniform(low, high):.6g}")

    events = []
    for i in range(n_events):
        objects = []
        for _ in range(rng.integers(3, 10)):
            pt, eta = number(2e4, 4e5), number(-2.5, 2.5)
            energy = float(f"{pt * np.cosh(eta) * 1.001:.6g}")
            objects.append(Obj(str(rng.choice(list(TAGS))), energy, pt, eta, number(-3.14, 3.14)))
        events.append(Event(i, "ttH", 1.0, number(1e4, 3e5), number(-3.14, 3.14), tuple(objects)))
    return events


def darkmachines_line(event: Event) -> str:
    head = f"{event.event_id};{event.process};{event.weight};{event.met};{event.met_phi}"
    return ";".join([head, *(f"{o.symbol},{o.energy},{o.pt},{o.eta},{o.phi}" for o in event.objects)])


def fixed_table(events: Sequence[Event], padding: float = 0.0) -> npt.NDArray[np.float64]:
    table = np.zeros((len(events), 92))
    table[:, 20:] = padding
    for row, event in zip(table, events, strict=True):
        row[18:20] = event.met, event.met_phi
        for i, o in enumerate(event.objects):
            row[i] = TAGS[o.symbol]
            row[20 + 4 * i : 24 + 4 * i] = o.energy, o.pt, o.eta, o.phi
    return table


def fixed_lines(table: npt.NDArray[np.float64], separator: str = ",") -> list[str]:
    return [separator.join([*(f"{tag:g}" for tag in row[:18]), *(repr(float(x)) for x in row[18:])]) for row in table]


def event_set(events: Sequence[Event], file: str = "events.csv") -> EventSet:
    """Events without any check: what a reader must give for good ones, and a way to write bad ones."""
    objects = [o for event in events for o in event.objects]
    flat = FlatEvents(
        row=np.arange(len(events)),
        event_id=np.array([event.event_id for event in events]),
        process_names=Names.of([event.process for event in events]),
        weight=np.array([event.weight for event in events]),
        met_mev=np.array([event.met for event in events]),
        met_phi=np.array([event.met_phi for event in events]),
        n_objects=np.array([len(event.objects) for event in events]),
        tag=np.array([TAGS[o.symbol] for o in objects], np.uint8),
        energy_mev=np.array([o.energy for o in objects]),
        pt_mev=np.array([o.pt for o in objects]),
        eta=np.array([o.eta for o in objects]),
        phi=np.array([o.phi for o in objects]),
    )
    return to_event_set(flat, file=file)


def write_darkmachines(path: Path, events: Sequence[Event]) -> None:
    path.write_text("".join(darkmachines_line(event) + "\n" for event in events))


def write_fixed_csv(path: Path, events: Sequence[Event]) -> None:
    path.write_text("".join(line + "\n" for line in fixed_lines(fixed_table(events))))


def write_hdf5(path: Path, events: Sequence[Event]) -> None:
    with h5py.File(path, "w") as file:
        file["events"] = fixed_table(events)


def write_npz(path: Path, events: Sequence[Event]) -> None:
    np.savez(path, events=fixed_table(events))


def write_parquet(path: Path, events: Sequence[Event]) -> None:
    write_events(path, event_set(events, file=path.name))


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is written, and what a place in it is called."""

    write: Callable[[Path, Sequence[Event]], None]
    file_name: str
    place: Callable[[int], str]


FORMATS = {
    "darkmachines": Format(write_darkmachines, "ttH.csv", lambda row: f"line {row + 1}"),
    "fixed csv": Format(write_fixed_csv, "ttH.txt", lambda row: f"line {row + 1}"),
    "hdf5": Format(write_hdf5, "ttH.h5", lambda row: f"row {row}"),
    "npz": Format(write_npz, "ttH.npz", lambda row: f"row {row}"),
    "parquet": Format(write_parquet, "ttH.parquet", lambda row: f"row {row}"),
}
