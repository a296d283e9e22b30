"""Simulated samples: a Dark Machines CSV file of selected events, and beside it a record of how it was made."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from zlib import crc32

import numpy as np

from simulation.detector import Card, Found, detect
from simulation.generator import Generator
from simulation.processes import Process

#: Nothing is selected of so many generated events: the selection is wrong.
MOST_GENERATED = 200_000


def leptons_of(found: Found) -> list[tuple[str, float, float, float, float]]:
    return sorted(found["e"] + found["m"], key=lambda lepton: -lepton[2])


def has_same_sign(leptons: list[tuple[str, float, float, float, float]]) -> bool:
    """Two leptons of the same charge, or more leptons."""
    return len(leptons) >= 3 or (len(leptons) == 2 and leptons[0][0][1] == leptons[1][0][1])


def is_dilepton(_met: float, found: Found) -> bool:
    return len(leptons_of(found)) >= 2


def is_same_sign(_met: float, found: Found) -> bool:
    tags = sum(jet[0] == "b" for jet in found["j"])
    return len(found["j"]) >= 3 and tags >= 1 and has_same_sign(leptons_of(found))


def is_2b(met: float, found: Found) -> bool:
    return met >= 50 and sum(jet[2] for jet in found["j"]) >= 50 and len(leptons_of(found)) >= 2


def is_four_top(_met: float, found: Found) -> bool:
    leptons = leptons_of(found)
    if len(leptons) < 2 or leptons[0][2] < 28 or leptons[1][2] < 20 or not has_same_sign(leptons):
        return False
    tags = sum(jet[0] == "b" for jet in found["j"])
    ht = sum(one[2] for one in [*found["j"], *leptons])
    return len(found["j"]) >= 6 and tags >= 2 and ht >= 500


def is_any(_met: float, _found: Found) -> bool:
    return True


@dataclass(frozen=True)
class Selection:
    """Which events are kept, and how many leptons the hard process needs to have a chance."""

    description: str
    passes: Callable[[float, Found], bool]
    n_leptons: int = 2
    same_sign: bool = False


SELECTIONS = {
    "any": Selection("every event", is_any, n_leptons=0),
    "dilepton": Selection("two electrons or muons", is_dilepton),
    "same-sign": Selection(
        "two leptons of one charge or three, three jets, one of them b-tagged", is_same_sign, same_sign=True
    ),
    "2b": Selection("two electrons or muons, MET and HT of 50 GeV", is_2b),
    "four-top": Selection(
        "two leptons of one charge or three, of 28 and 20 GeV, six jets, two of them b-tagged, HT of 500 GeV",
        is_four_top,
        same_sign=True,
    ),
}


@dataclass(frozen=True)
class Job:
    """A sample to make: it is done if its record is there."""

    process: Process
    selection: str
    n_events: int
    seed: int
    out: Path
    detector: str = "atlas"
    lhe: Path | None = None
    digits: int = 6

    @property
    def record(self) -> Path:
        return self.out.with_name(self.out.name.removesuffix(".csv.gz") + ".json")

    @property
    def is_done(self) -> bool:
        return self.record.exists() and self.out.exists()

    def run(self, tell: Callable[[str], None] = lambda _: None) -> str:
        """Write the sample and its record, or nothing."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        partial = self.out.with_name(f".{self.out.name}.part")
        try:
            with gzip.open(partial, "wt") as file:
                facts = self._simulate(file.write, tell)
            partial.replace(self.out)
        finally:
            partial.unlink(missing_ok=True)
        self.record.write_text(json.dumps(facts, indent=1) + "\n")
        return f"{self.out.name}: {facts['written']} events, efficiency {facts['efficiency']:.3g}"

    def _simulate(self, write: Callable[[str], object], tell: Callable[[str], None]) -> dict[str, object]:
        selection, card = SELECTIONS[self.selection], Card.load(self.detector)
        rng, begin, n = np.random.default_rng(self.seed), time.monotonic(), 0
        options = {"n_leptons": selection.n_leptons, "same_sign": selection.same_sign, "lhe": self.lhe}
        with Generator(self.process, self.seed, **options) as generator:
            for truth in generator:
                for met, met_phi, found in detect(rng, card, truth) if truth.n_events else []:
                    if not selection.passes(met, found):
                        continue
                    n += 1
                    if n <= self.n_events:
                        write(line_of(n, self.process.label, met, met_phi, found, self.digits))
                rate = n / max(time.monotonic() - begin, 1e-9)
                tell(f"{self.process.label}: {n} selected of {generator.n_generated}, {rate:.0f} per second")
                if n >= self.n_events:
                    break
                if not n and generator.n_generated > MOST_GENERATED:
                    raise ValueError(
                        f"{self.process.label}: nothing selected of {generator.n_generated:,} events; "
                        f"{self.selection} asks for {selection.description}"
                    )
            if not n:
                raise ValueError(f"{self.process.label}: nothing selected of {generator.n_generated:,} events")
            cross_section, generated = generator.cross_section_pb, generator.n_generated
        efficiency = n / generated
        return {
            "process": self.process.label,
            "family": self.process.family,
            "description": self.process.description,
            "masses_gev": self.process.masses,
            "selection": self.selection,
            "detector": card.description,
            "lhe": self.lhe.name if self.lhe else None,
            "seed": self.seed,
            "written": min(n, self.n_events),
            "selected": n,
            "generated": generated,
            "cross_section_pb": cross_section,
            "efficiency": efficiency,
            "efficiency_error": math.sqrt(efficiency * (1 - efficiency) / generated),
            "versions": {name: version(name) for name in ("pythia8mc", "fastjet")},
        }


def line_of(number: int, name: str, met: float, met_phi: float, found: Found, digits: int) -> str:
    """One event in the Dark Machines format, in MeV."""
    one = lambda value: f"{value:.{digits}g}"  # noqa: E731
    entries = [f"{number};{name};1;{one(met * 1e3)};{one(met_phi)}"]
    for listed in found.values():
        entries += [f"{o},{one(e * 1e3)},{one(pt * 1e3)},{one(eta)},{one(phi)}" for o, e, pt, eta, phi in listed]
    return ";".join(entries) + ";\n"


def library(processes: dict[str, Process], out: Path, n_events: dict[str, int], digits: int) -> list[Job]:
    """All samples of the library of theories; the seed of each follows from its name."""
    return [
        Job(one, sample, n_events[sample], 1 + crc32(f"{sample} {one.label}".encode()) % 900_000, path, digits=digits)
        for process in processes.values()
        for sample in process.samples
        for one in map(lambda point, process=process: process.at(*point), process.points)
        for path in [out / sample / f"{one.label}.csv.gz"]
    ]


def run_jobs(jobs: list[Job], n_processes: int, tell: Callable[[str], None]) -> Iterator[tuple[Job, Exception]]:
    """Do what is not done yet, several at a time; yield what failed."""
    todo = [job for job in jobs if not job.is_done]
    tell(f"{len(jobs) - len(todo)} of {len(jobs)} samples are there")
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(job.run): job for job in todo}
        for done, future in enumerate(as_completed(futures), start=1):
            try:
                tell(f"[{done}/{len(todo)}] {future.result()}")
            except Exception as error:
                tell(f"[{done}/{len(todo)}] failed: {error}")
                yield futures[future], error
