"""Events of a process at particle level: Pythia from its own processes, from LHE files, or from its settings files."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import awkward as ak
import numpy as np
import pythia8mc

from simulation.detector import Truth
from simulation.processes import PARTICLES, Process, spectrum

#: Pythia's largest.
MAX_SEED = 900_000_000
BATCH_EVENTS = 500


class LeptonVeto(pythia8mc.UserHooks):
    """Stop, before its shower, an event that hardly can be selected: its hard process has too few charged leptons."""

    def __init__(self, n_leptons: int, same_sign: bool) -> None:
        super().__init__()
        self.n_leptons, self.same_sign, self.generated = n_leptons, same_sign, 0

    def canVetoProcessLevel(self) -> bool:  # noqa: N802
        return True

    def doVetoProcessLevel(self, process: pythia8mc.Event) -> bool:  # noqa: N802
        self.generated += 1
        charges = [p.charge() for p in process if p.isFinal() and p.idAbs() in (11, 13, 15)]
        return len(charges) < self.n_leptons or (self.same_sign and len(charges) == 2 and sum(charges) == 0)


class Generator:
    """Batches of events of a process.

    Parameters
    ----------
    n_leptons
        Charged leptons that an event needs to be worth a detector.
    same_sign
        Whether two leptons must be of one charge.
    lhe
        Les Houches file of hard processes, in place of Pythia's own.
    """

    def __init__(
        self, process: Process, seed: int, *, n_leptons: int = 2, same_sign: bool = False, lhe: Path | None = None
    ) -> None:
        if not 1 <= seed <= MAX_SEED:
            raise ValueError(f"seed {seed}; expected a number from 1 to {MAX_SEED}")
        if closed := process.closed_decays():
            raise ValueError(f"{process.label}: a decay is closed: {closed[0]}; choose other masses")
        content = read_lhe(lhe) if lhe else ""
        self.pythia, self.n_leptons = pythia8mc.Pythia("", False), n_leptons
        self.veto = LeptonVeto(n_leptons, same_sign)
        settings = ["Print:quiet = on", "Beams:eCM = 13000", "PartonLevel:MPI = off", "Random:setSeed = on"]
        # Of a file's processes, the card has only the decays: settings that begin with the code of a particle.
        settings += [f"Random:seed = {seed}", *(line for line in process.pythia if not lhe or line[0].isdigit())]
        if not process.decays:
            settings += [f"{PARTICLES[name]}:m0 = {mass}" for name, mass in process.masses.items()]
        self.folder = tempfile.TemporaryDirectory()  # Pythia goes on reading a Les Houches file
        folder = Path(self.folder.name)
        if process.decays:
            (folder / "spectrum.slha").write_text(spectrum(process))
            settings += [f"SLHA:file = {folder}/spectrum.slha", "SLHA:verbose = 0"]
        if lhe:
            (folder / "events.lhe").write_text(content)
            settings += ["Beams:frameType = 4", f"Beams:LHEF = {folder}/events.lhe"]
        for line in settings:
            if not self.pythia.readString(line):
                raise ValueError(f"{process.name}: Pythia does not know the setting {line!r}")
        self.pythia.setUserHooksPtr(self.veto)
        if not self.pythia.init():
            raise ValueError(f"{process.label}: Pythia did not start; is a process on, are its masses allowed?")

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()

    @property
    def n_generated(self) -> int:
        """Number of events so far, with those that the veto stopped."""
        return self.veto.generated

    @property
    def cross_section_pb(self) -> float:
        """Cross section of the process with its decays at leading order, as estimated so far."""
        info = self.pythia.infoPython()
        passed = info.nAccepted() / max(self.veto.generated, 1)
        return float(info.sigmaGen() * 1e9 / max(passed, 1e-12))

    def __iter__(self) -> Iterator[Truth]:
        """Yield batches without events that lack prompt leptons in reach of the detector."""
        while True:
            batch = self.pythia.nextBatch(BATCH_EVENTS)
            if not len(batch):
                return
            yield Truth(self._in_reach(batch))

    def _in_reach(self, batch: ak.Array) -> ak.Array:
        truth = Truth(batch)
        hard = truth.stable & np.isin(truth.kind, (11, 13)) & (truth.all.pt > 10) & (np.abs(truth.all.eta) < 2.6)
        rows = np.flatnonzero(hard)
        leptons = truth.all[rows[truth.prompt(rows)]]
        return batch[np.bincount(leptons.event, minlength=truth.n_events) >= self.n_leptons]


def read_lhe(path: Path) -> str:
    """Text of a Les Houches file, plain or gzip, after checking that it is whole."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    if "<LesHouchesEvents" not in text[:10_000]:
        raise ValueError(f"{path}: is not a Les Houches file (no <LesHouchesEvents>)")
    if "</LesHouchesEvents>" not in text[-10_000:]:
        raise ValueError(f"{path}: the file is truncated (no </LesHouchesEvents>); fetch it again")
    return text
