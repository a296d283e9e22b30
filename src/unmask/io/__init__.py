"""Readers of event files, and the Parquet files of unmask; the names of file formats, without loading a reader."""

from typing import Literal, get_args

RootFormat = Literal["delphes", "nanoaod", "physlite"]
FileFormat = Literal["darkmachines", "fixed", "parquet", "delphes", "nanoaod", "physlite"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
ROOT_FORMATS: tuple[RootFormat, ...] = get_args(RootFormat)

#: Branches that tell a format. A file that lacks some is still recognized, and its reader names what is missing.
ROOT_MARKS: dict[RootFormat, tuple[str, ...]] = {
    "delphes": ("Event.Number", "Jet.PT", "Electron.PT", "Muon.PT", "MissingET.MET"),
    "nanoaod": ("Jet_pt", "Electron_pt", "Muon_pt", "MET_pt", "PuppiMET_pt"),
    "physlite": ("EventInfoAuxDyn.eventNumber", "AnalysisJetsAuxDyn.pt", "AnalysisElectronsAuxDyn.pt"),
}
