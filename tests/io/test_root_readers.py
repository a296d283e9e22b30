"""ROOT readers: Delphes, CMS NanoAOD and ATLAS PHYSLITE, each as TTree and RNTuple."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import root_events
import uproot
from tests.cli.running import failing, running

from unmask.errors import BadDataError, MissingExtraError, UsageError
from unmask.events.checks import BadEvents
from unmask.events.event_set import EventSet
from unmask.io.read import detect_kind, read_events, stream_events
from unmask.io.root_file import Tree
from unmask.io.selections import OBJECT_KINDS
from unmask.io.source import ReadOptions
from unmask.scores.score_table import read_scores

KINDS = tuple(root_events.GROUPS)
PREFIX = {"delphes": "{}", "nanoaod": "{}", "physlite": "Analysis{}sAuxDyn"}
PT, ETA = {"delphes": "PT", "nanoaod": "pt", "physlite": "pt"}, {"delphes": "Eta", "nanoaod": "eta", "physlite": "eta"}
PER_GEV = {"delphes": 1.0, "nanoaod": 1.0, "physlite": 1e3}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_storage = pytest.mark.parametrize("storage", ["ttree", "rntuple"])


def collection(groups: root_events.Groups, kind: str, name: str) -> dict[str, Any]:
    """The columns of Jet, Electron, Muon or Photon in a format."""
    return groups[PREFIX[kind].format(name)]


def with_value(values: Any, event: int, index: int, value: float) -> Any:
    """The same jagged column with one value changed."""
    flat = ak.to_numpy(ak.flatten(values)).copy()
    flat[ak.sum(ak.num(values[:event])) + index] = value
    return ak.unflatten(flat, ak.num(values))


def tags(events: EventSet) -> list[list[int]]:
    return [[int(tag) for tag in event if tag] for event in events.tag]


def select(**selection: Any) -> ReadOptions:
    return ReadOptions(selection=selection)


class TestContent:
    @every_storage
    @every_kind
    def test_events_come_out_as_written(self, tmp_path: Path, kind: str, storage: root_events.Storage) -> None:
        path = root_events.write(tmp_path / "ttbar.root", kind, storage=storage)
        assert detect_kind(path) == kind
        events = read_events(path)
        assert tags(events) == root_events.TAGS
        assert events.event_id.tolist() == root_events.EVENT_ID.tolist()
        assert events.row.tolist() == list(range(root_events.N_EVENTS))
        assert events.weight.tolist() == root_events.WEIGHT.tolist()
        assert set(events.process) == {"ttbar"}
        assert set(events.file) == {str(path)}
        np.testing.assert_allclose(events.met_mev, root_events.MET_GEV * 1e3, rtol=1e-5)
        np.testing.assert_allclose(events.met_phi, root_events.MET_PHI, atol=1e-5)
        # Event 0: jet 60 GeV, b-jets 120 and 25 GeV, electron 30 GeV.
        np.testing.assert_allclose(events.pt_mev[0, :4], [60e3, 120e3, 25e3, 30e3], rtol=1e-6)
        np.testing.assert_allclose(events.eta[0, :4], [-1.0, 0.5, 2.0, -1.0], rtol=1e-6)
        np.testing.assert_allclose(events.phi[0, :4], [2.0, 0.0, -2.0, 1.0], rtol=1e-6)
        jet_energy = np.sqrt((60e3 * np.cosh(1.0)) ** 2 + 8e3**2)
        np.testing.assert_allclose(events.energy_mev[0, [0, 3]], [jet_energy, 30e3 * np.cosh(1.0)], rtol=1e-6)

    @every_storage
    @every_kind
    def test_chunks_do_not_matter(self, tmp_path: Path, kind: str, storage: root_events.Storage) -> None:
        path = root_events.write(tmp_path / "a.root", kind, storage=storage)
        fractions: list[float] = []
        chunks = list(stream_events(path, options=ReadOptions(chunk_events=3), progress=fractions.append))
        assert [len(chunk) for chunk in chunks] == [3, 3, 1]
        assert fractions[:3] == [3 / 7, 6 / 7, 1.0]
        assert read_events(path, options=ReadOptions(chunk_events=3)).equals(read_events(path))

    @every_storage
    @pytest.mark.parametrize("kind", ["nanoaod", "physlite"])
    def test_run_and_luminosity_block_are_read(self, tmp_path: Path, kind: str, storage: root_events.Storage) -> None:
        events = read_events(root_events.write(tmp_path / "a.root", kind, storage=storage))
        assert events.further["run"].tolist() == root_events.RUN.tolist()
        assert events.further["luminosity_block"].tolist() == root_events.LUMINOSITY_BLOCK.tolist()

    def test_branches_can_be_kept(self, tmp_path: Path) -> None:
        path = root_events.write(tmp_path / "a.root", "nanoaod")
        events = read_events(path, options=ReadOptions(keep=("PuppiMET_pt", "nJet", "Jet_mass[1]"), chunk_events=4))
        np.testing.assert_allclose(events.further["PuppiMET_pt"], root_events.MET_GEV + 7)
        assert events.further["nJet"].tolist() == [3, 1, 0, 2, 1, 2, 1]
        np.testing.assert_array_equal(events.further["Jet_mass[1]"], [8, np.nan, np.nan, 9, np.nan, 6, np.nan])
        with pytest.raises(BadDataError, match=r"a\.root: the branch PuppiMET is missing; did you mean PuppiMET_pt"):
            read_events(path, options=ReadOptions(keep=("PuppiMET",)))
        with pytest.raises(BadDataError, match=r"entry 0: Jet_pt has 3 values; accepted: one per event, .*Jet_pt\[0\]"):
            read_events(path, options=ReadOptions(keep=("Jet_pt",)))

    def test_identity_and_kept_branches_go_to_the_scores(self, tmp_path: Path) -> None:
        # Branches of a PHYSLITE file have a dot in their name.
        path = root_events.write(tmp_path / "a.root", "physlite")
        kept = "EventInfoAuxDyn.mcEventWeights[1]"
        running("data", "convert", path, "-o", tmp_path / "a.parquet", "--keep", kept)
        running("score", "sample:gluino-model", tmp_path / "a.parquet", "--out", tmp_path / "scores.parquet")
        scores = read_scores(tmp_path / "scores.parquet")
        assert scores.further["run"].tolist() == root_events.RUN.tolist()
        assert scores.further[kept].tolist() == [99.0] * 7
        assert set(scores.file) == {str(path)}
        assert scores.event_id.tolist() == root_events.EVENT_ID.tolist()

    @every_kind
    def test_process_name_can_be_given(self, tmp_path: Path, kind: str) -> None:
        path = root_events.write(tmp_path / "a.root", kind)
        assert set(read_events(path, options=ReadOptions(process="Zjets")).process) == {"Zjets"}

    @every_kind
    def test_data_has_no_weights_and_counts_as_one(self, tmp_path: Path, kind: str) -> None:
        groups = root_events.GROUPS[kind]()
        group, name = {
            "delphes": ("Event", "Weight"),
            "nanoaod": ("", "genWeight"),
            "physlite": ("EventInfoAuxDyn", "mcEventWeights"),
        }[kind]
        del groups[group][name]
        assert read_events(root_events.write(tmp_path / "a.root", kind, groups)).weight.tolist() == [1.0] * 7

    @every_storage
    @pytest.mark.parametrize("version", [9, 12, 15])
    def test_nanoaod_met_and_tagger_of_each_version(
        self, tmp_path: Path, version: Any, storage: root_events.Storage
    ) -> None:
        path = root_events.write(tmp_path / "a.root", "nanoaod", root_events.nanoaod(version), storage=storage)
        events = read_events(path)
        np.testing.assert_allclose(events.met_mev, root_events.MET_GEV * 1e3, rtol=1e-6)
        np.testing.assert_allclose(events.met_phi, root_events.MET_PHI, rtol=1e-6)
        assert tags(events) == root_events.TAGS

    def test_nanoaod_rntuple_of_records(self, tmp_path: Path) -> None:
        groups = root_events.nanoaod()
        with uproot.recreate(tmp_path / "a.root") as file:
            columns = {name: ak.zip(values) for name, values in groups.items() if name in ("Jet", "Electron")}
            for name in ("Muon", "Photon", "MET"):
                columns |= {f"{name}_{key}": values for key, values in groups[name].items()}
            file["Events"] = columns | groups[""]
        assert tags(read_events(tmp_path / "a.root")) == root_events.TAGS

    def test_physlite_met_counts_forward_jets(self, tmp_path: Path) -> None:
        # The jet leaves the event, not the MET; and the threshold on the event's jets does not move the MET either.
        groups = root_events.physlite()
        jets = groups["AnalysisJetsAuxDyn"]
        jets["eta"] = with_value(jets["eta"], 0, 0, 3.5)
        path = root_events.write(tmp_path / "a.root", "physlite", groups)
        for options in (ReadOptions(), select(jet={"min_pt_gev": 100})):
            events = read_events(path, options=options)
            np.testing.assert_allclose(events.met_mev, root_events.MET_GEV * 1e3, rtol=1e-5)
        assert tags(read_events(path))[0] == [1, 2, 3]


class TestSelection:
    @every_kind
    @pytest.mark.parametrize(
        ("name", "event", "index", "pt_gev", "abs_eta"),
        [("Jet", 4, 0, 20, 2.8), ("Electron", 6, 0, 15, 2.47), ("Muon", 1, 0, 15, 2.7), ("Photon", 4, 0, 20, 2.37)],
    )
    def test_thresholds_and_how_to_move_them(
        self, tmp_path: Path, kind: str, name: str, event: int, index: int, pt_gev: float, abs_eta: float
    ) -> None:
        groups = root_events.GROUPS[kind]()
        columns = collection(groups, kind, name)
        pt, eta = columns[PT[kind]], columns[ETA[kind]]

        def n_objects(pt_value: float, eta_value: float, **change: float) -> int:
            columns[PT[kind]] = with_value(pt, event, index, pt_value * PER_GEV[kind])
            columns[ETA[kind]] = with_value(eta, event, index, eta_value)
            path = root_events.write(tmp_path / "a.root", kind, groups)
            return int(read_events(path, options=select(**{name.lower(): change})).n_objects[event])

        assert n_objects(pt_gev + 0.01, abs_eta - 0.01) == 2
        assert n_objects(pt_gev - 0.01, abs_eta - 0.01) == 1
        assert n_objects(pt_gev - 0.01, abs_eta - 0.01, min_pt_gev=pt_gev - 1) == 2
        assert n_objects(pt_gev + 0.01, -abs_eta - 0.01) == 1
        assert n_objects(pt_gev + 0.01, -abs_eta - 0.01, max_abs_eta=abs_eta + 0.1) == 2

    @pytest.mark.parametrize(
        ("kind", "name", "event", "column", "good", "bad"),
        [
            ("nanoaod", "Electron", 6, "cutBased", 3, 2),
            ("nanoaod", "Muon", 1, "mediumId", 1, 0),
            ("nanoaod", "Muon", 1, "pfRelIso04_all", 0.24, 0.26),
            ("nanoaod", "Photon", 4, "cutBased", 2, 1),
            ("physlite", "Electron", 6, "DFCommonElectronsLHMedium", 1, 0),
            # 18 GeV electron: 15 % are 2.7 GeV.
            ("physlite", "Electron", 6, "ptvarcone30_Nonprompt_All_MaxWeightTTVALooseCone_pt1000", 2.6e3, 2.8e3),
            ("physlite", "Muon", 1, "quality", 9, 10),
            ("physlite", "Photon", 4, "topoetcone20", 0.06 * 66e3, 0.07 * 66e3),
            ("physlite", "Jet", 6, "NNJvtPass", 1, 0),
        ],
    )
    def test_identification_and_isolation(
        self, tmp_path: Path, kind: str, name: str, event: int, column: str, good: float, bad: float
    ) -> None:
        groups = root_events.GROUPS[kind]()
        columns = collection(groups, kind, name)
        values = columns[column]
        no_cuts = {name.lower(): {"isolation": {}, "identification": {}}}
        n_objects = []
        for value, options in ((good, ReadOptions()), (bad, ReadOptions()), (bad, select(**no_cuts))):
            columns[column] = with_value(values, event, 0, value)
            path = root_events.write(tmp_path / "a.root", kind, groups)
            n_objects.append(int(read_events(path, options=options).n_objects[event]))
        assert n_objects == [2, 1, 2]

    def test_an_isolation_that_is_no_number_is_reported(self, tmp_path: Path) -> None:
        groups = root_events.nanoaod()
        groups["Muon"]["pfRelIso04_all"] = with_value(groups["Muon"]["pfRelIso04_all"], 3, 1, np.nan)
        path = root_events.write(tmp_path / "a.root", "nanoaod", groups)
        with pytest.raises(BadDataError, match="entry 3: pfRelIso04_all of muon is NaN; accepted: a number"):
            read_events(path)
        bad = BadEvents(skip=True)
        assert read_events(path, bad=bad).row.tolist() == [0, 1, 2, 4, 5, 6]
        assert bad.reasons == {"bad quality": 1}

    @pytest.mark.parametrize(
        ("version", "tagger", "threshold"),
        [(9, "btagDeepFlavB", 0.2783), (12, "btagRobustParTAK4B", 0.4319), (15, "btagUParTAK4B", 0.1272)],
    )
    def test_nanoaod_b_tag_working_points(self, tmp_path: Path, version: Any, tagger: str, threshold: float) -> None:
        groups = root_events.nanoaod(version)
        scores = groups["Jet"][tagger]
        for score, tag in ((threshold + 1e-3, 2), (threshold - 1e-3, 1)):
            groups["Jet"][tagger] = with_value(scores, 6, 0, score)
            path = root_events.write(tmp_path / "a.root", "nanoaod", groups)
            assert read_events(path).tag[6, 0] == tag
            assert read_events(path, options=select(jet={"b_tag": {tagger: threshold - 0.01}})).tag[6, 0] == 2
            assert read_events(path, options=select(jet={"b_tag": {}})).tag[6, 0] == 1

    def test_nanoaod_tagger_that_was_not_run(self, tmp_path: Path) -> None:
        # As in the open data of 2015: the branch is there, with a negative number for every jet.
        groups = root_events.nanoaod()
        jets = groups["Jet"]
        jets["btagCSVV2"] = jets["btagDeepFlavB"]
        jets["btagDeepFlavB"] = with_value(jets["btagDeepFlavB"] * 0 - 3000, 6, 0, 0.9)
        tags_without = [*root_events.TAGS[:6], [2, 4]]
        assert tags(read_events(root_events.write(tmp_path / "a.root", "nanoaod", groups))) == tags_without

    def test_delphes_b_tag_is_a_bit_for_each_working_point(self, tmp_path: Path) -> None:
        groups = root_events.delphes()
        groups["Jet"]["BTag"] = with_value(groups["Jet"]["BTag"], 6, 0, 0b110)
        path = root_events.write(tmp_path / "a.root", "delphes", groups)
        expected = {1: 1, 2: 2, 4: 2, 8: 1}
        found = {bits: read_events(path, options=select(jet={"b_tag": {"BTag": bits}})).tag[6, 0] for bits in expected}
        assert found == expected

    def test_physlite_prefers_the_newer_tagger(self, tmp_path: Path) -> None:
        # D = log(p / (0.2 p_c + 0.01 p_tau + 0.79 p_u)) with all others equal to x is log(p / x); the cut is 0.844.
        groups = root_events.physlite()
        b_tagging = groups["BTagging_AntiKt4EMPFlowAuxDyn"]
        probability = b_tagging["DL1dv01_pb"] * 0 + 0.1
        b_tagging |= {f"GN2v01_p{flavour}": probability for flavour in ("c", "tau", "u")}
        for discriminant, tag in ((0.85, 2), (0.84, 1)):
            b_tagging["GN2v01_pb"] = with_value(probability, 6, 0, 0.1 * np.exp(discriminant))
            path = root_events.write(tmp_path / "a.root", "physlite", groups)
            assert tags(read_events(path))[5:] == [[1, 1], [tag, 4]]

    def test_physlite_jet_without_link_is_no_b_jet(self, tmp_path: Path) -> None:
        groups = root_events.physlite()
        jets = groups["AnalysisJetsAuxDyn"]
        link = jets["btaggingLink.m_persIndex"]
        jets["btaggingLink.m_persIndex"] = with_value(link, 0, 0, 2**32 - 1)
        assert tags(read_events(root_events.write(tmp_path / "a.root", "physlite", groups)))[0] == [1, 1, 2, 3]

    @pytest.mark.parametrize("kind", ["nanoaod", "physlite"])
    @pytest.mark.parametrize(("delta_phi", "n_jets"), [(0.39, 1), (0.41, 2)])
    def test_jet_of_a_muon_is_not_counted_twice(self, tmp_path: Path, kind: str, delta_phi: float, n_jets: int) -> None:
        # Jet 0 of event 3 is moved next to muon 1, across the seam at +-pi.
        groups = root_events.GROUPS[kind]()
        jets, muons = collection(groups, kind, "Jet"), collection(groups, kind, "Muon")
        jets["phi"] = with_value(jets["phi"], 3, 0, 3.1)
        jets["eta"] = with_value(jets["eta"], 3, 0, 1.1)
        muons["phi"] = with_value(muons["phi"], 3, 1, 3.1 + delta_phi - 2 * np.pi)
        jets["eta"] = with_value(jets["eta"], 3, 1, -1.0)
        path = root_events.write(tmp_path / "a.root", kind, groups)
        for options, expected in ((ReadOptions(), n_jets), (select(jet={"min_delta_r": 0}), 2)):
            assert np.isin(read_events(path, options=options).tag[3], (1, 2)).sum() == expected

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            ({"jets": {"min_pt_gev": 30}}, "unknown object 'jets'; did you mean 'jet'"),
            ({"jet": {"min_pt": 30}}, "unknown key 'min_pt'; did you mean 'min_pt_gev'"),
            ({"electron": {"b_tag": {"BTag": 1}}}, "unknown key 'b_tag'"),
            ({"jet": {"min_pt_gev": "30"}}, "min_pt_gev is '30'; accepted: a number"),
            ({"jet": {"b_tag": 0.5}}, "accepted: branch and limit"),
            ({"jet": {"b_tag": {"BTag": 0.5}}}, "accepted: bits"),
            ({"jet": 30}, "accepted: a table"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path: Path, selection: Any, message: str) -> None:
        path = root_events.write(tmp_path / "a.root", "delphes")
        with pytest.raises(UsageError, match=message):
            read_events(path, options=ReadOptions(selection=selection))

    def test_a_selection_that_leaves_no_muon_warns(self, tmp_path: Path) -> None:
        groups = root_events.nanoaod()
        groups["Muon"] |= {"mediumId": groups["Muon"]["pt"] < 0, "looseId": groups["Muon"]["pt"] > 0}
        path = root_events.write(tmp_path / "a.root", "nanoaod", groups)
        command = ("data", "inspect", path)
        warning = "warning: a.root: all 3 muons fail mediumId >= 1; change it with --select muon..."
        assert running(*command)[1].splitlines() == [warning]
        assert not running(*command, "--select", "muon.identification.looseId=1")[1]
        code, message = failing(*command, "--select", "muon.identification.looseid=1")
        assert code == 3
        assert "the branch Muon_looseid is missing; did you mean Muon_looseId" in " ".join(message.split())
        few_and_soft = running(*command, "--select", "muon.min_pt_gev=1e3")
        assert not few_and_soft[1]

    def test_branch_of_an_override_must_exist(self, tmp_path: Path) -> None:
        path = root_events.write(tmp_path / "a.root", "nanoaod")
        with pytest.raises(BadDataError, match=r"Jet_btagDeepFlavC is missing; did you mean Jet_btagDeepFlavB"):
            read_events(path, options=select(jet={"b_tag": {"btagDeepFlavC": 0.5}}))


class TestTrees:
    @every_kind
    def test_other_name_and_folder(self, tmp_path: Path, kind: str) -> None:
        path = root_events.write(tmp_path / "a.root", kind, tree="skim/mine")
        assert tags(read_events(path)) == root_events.TAGS

    def test_one_of_several(self, tmp_path: Path) -> None:
        path = tmp_path / "a.root"
        few = {
            group: {key: column[:2] for key, column in columns.items()}
            for group, columns in root_events.nanoaod().items()
        }
        with uproot.recreate(path) as file:
            root_events.add_tree(file, "Events", "nanoaod", root_events.nanoaod(), "ttree")
            root_events.add_tree(file, "Small", "nanoaod", few, "ttree")
            file.mktree("Runs", {"run": "int64"})
        with pytest.raises(UsageError, match="pick one with the option tree: Events, Small"):
            read_events(path)
        assert len(read_events(path, options=ReadOptions(tree="Small"))) == 2
        with pytest.raises(UsageError, match="no tree 'events'; did you mean 'Events'"):
            read_events(path, options=ReadOptions(tree="events"))

    def test_colon_in_the_file_name(self, tmp_path: Path) -> None:
        assert len(read_events(root_events.write(tmp_path / "run:1.root", "delphes"))) == 7

    def test_branches_inside_branches(self) -> None:
        # What split collections look like in a tree that ROOT itself wrote; uproot cannot write them.
        class Split:
            def keys(self) -> list[str]:
                return ["Jet", "Jet/Jet.fUniqueID", "Jet/Jet.PT", "Jet_size"]

            def __getitem__(self, key: str) -> Any:
                assert key == "Jet/Jet.PT"
                return self

            def array(self, entry_start: int, entry_stop: int, library: str) -> str:
                return f"{library} {entry_start} {entry_stop}"

        tree = Tree(Path("a.root"), Split())
        assert "Jet.PT" in tree
        assert "Jet.Eta" not in tree
        assert tree.read("Jet.PT", 3, 5) == "ak 3 5"


class TestBadFiles:
    @every_storage
    @every_kind
    @pytest.mark.parametrize("name", ["Jet", "Muon"])
    def test_missing_branch(self, tmp_path: Path, kind: str, storage: root_events.Storage, name: str) -> None:
        groups = root_events.GROUPS[kind]()
        groups.pop("AnalysisTauJetsAuxDyn", None)  # its branches have names as near
        columns = collection(groups, kind, name)
        columns[f"{ETA[kind]}_raw"] = columns.pop(ETA[kind])
        path = root_events.write(tmp_path / "a.root", kind, groups, storage=storage)
        with pytest.raises(
            BadDataError, match=rf"a\.root: the branch .*{name}.*{ETA[kind]} is missing; did you mean .*_raw"
        ):
            read_events(path)

    @pytest.mark.parametrize(
        ("kind", "group", "branch"),
        [
            ("delphes", "MissingET", "MissingET.MET"),
            ("nanoaod", "MET", "PuppiMET_pt"),
            ("physlite", "MET_Core_AnalysisMETAuxDyn", "MET_Core_AnalysisMETAuxDyn.source"),
            ("physlite", "BTagging_AntiKt4EMPFlowAuxDyn", "BTagging_AntiKt4EMPFlowAuxDyn.GN2v01_pb"),
        ],
    )
    def test_missing_met_or_tagger(self, tmp_path: Path, kind: str, group: str, branch: str) -> None:
        groups = root_events.GROUPS[kind]()
        del groups[group]
        groups.pop("PuppiMET", None)
        with pytest.raises(BadDataError, match=f"the branch {branch} is missing"):
            read_events(root_events.write(tmp_path / "a.root", kind, groups))

    @every_storage
    @every_kind
    def test_truncated_file(self, tmp_path: Path, kind: str, storage: root_events.Storage) -> None:
        data = root_events.write(tmp_path / "whole.root", kind, storage=storage).read_bytes()
        path = tmp_path / "cut.root"
        for part in (0.02, 0.3, 0.6, 0.9, 0.99):
            path.write_bytes(data[: int(part * len(data))])
            with pytest.raises(BadDataError, match=r"cut\.root"):
                read_events(path)

    @every_kind
    def test_overwritten_bytes(self, tmp_path: Path, kind: str) -> None:
        # A reader of damaged bytes ends in a clear error or in events, never in a traceback of the ROOT library.
        data = root_events.write(tmp_path / "whole.root", kind).read_bytes()
        path = tmp_path / "damaged.root"
        n_errors = 0
        for start in range(8, len(data), len(data) // 20):
            path.write_bytes(data[:start] + b"\xff" * 40 + data[start + 40 :])
            try:
                read_events(path, bad=BadEvents(skip=True))
            except BadDataError:
                n_errors += 1
        assert n_errors > 5

    def test_only_histograms(self, tmp_path: Path) -> None:
        with uproot.recreate(tmp_path / "a.root") as file:
            file["h"] = np.histogram([1.0, 2.0, 3.0])
        with pytest.raises(BadDataError, match=r"trees: none; accepted: delphes, nanoaod, physlite"):
            read_events(tmp_path / "a.root")

    def test_unknown_tree(self, tmp_path: Path) -> None:
        with uproot.recreate(tmp_path / "a.root") as file:
            file.mktree("ntuple", {"x": "float64"})
            file["ntuple"].extend({"x": np.arange(3.0)})
        with pytest.raises(BadDataError, match="trees: ntuple"):
            read_events(tmp_path / "a.root")
        with pytest.raises(BadDataError, match="trees: ntuple; accepted: delphes"):
            read_events(tmp_path / "a.root", kind="delphes")

    def test_no_events(self, tmp_path: Path) -> None:
        with uproot.recreate(tmp_path / "a.root") as file:
            file.mktree("Delphes", {"Jet.PT": "var * float32"})
        with pytest.raises(BadDataError, match="holds no events"):
            read_events(tmp_path / "a.root")

    @every_kind
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_value_that_is_not_finite(self, tmp_path: Path, kind: str, value: float) -> None:
        groups = root_events.GROUPS[kind]()
        columns = collection(groups, kind, "Jet")
        columns[PT[kind]] = with_value(columns[PT[kind]], 4, 0, value)
        path = root_events.write(tmp_path / "a.root", kind, groups)
        with pytest.raises(BadDataError, match=r"a\.root, entry 4: "):
            read_events(path, options=ReadOptions(chunk_events=2))
        bad = BadEvents(skip=True)
        assert read_events(path, bad=bad).row.tolist() == [0, 1, 2, 3, 5, 6]
        assert bad.n_skipped == 1

    def test_event_without_met(self, tmp_path: Path) -> None:
        groups = root_events.delphes()
        groups["MissingET"] = {
            key: ak.Array([*column.to_list()[:6], []]) for key, column in groups["MissingET"].items()
        }
        path = root_events.write(tmp_path / "a.root", "delphes", groups)
        with pytest.raises(BadDataError, match=r"entry 6: met_mev is nan"):
            read_events(path)

    def test_physlite_event_without_soft_term(self, tmp_path: Path) -> None:
        groups = root_events.physlite()
        met = groups["MET_Core_AnalysisMETAuxDyn"]
        met["source"] = with_value(met["source"], 5, 1, 0x11020)
        path = root_events.write(tmp_path / "a.root", "physlite", groups)
        with pytest.raises(BadDataError, match=r"entry 5: 0 soft MET terms"):
            read_events(path, options=ReadOptions(chunk_events=4))

    @pytest.mark.parametrize(
        ("group", "column"),
        [
            ("AnalysisJetsAuxDyn", "phi"),
            ("AnalysisJetsAuxDyn", "btaggingLink.m_persIndex"),
            ("BTagging_AntiKt4EMPFlowAuxDyn", "DL1dv01_pc"),
            ("MET_Core_AnalysisMETAuxDyn", "mpy"),
        ],
    )
    def test_columns_of_different_length(self, tmp_path: Path, group: str, column: str) -> None:
        groups = root_events.physlite()
        values = groups[group][column]
        groups[group][column] = ak.concatenate([values[:5], values[5:6, :1], values[6:]])
        path = root_events.write(tmp_path / "a.root", "physlite", groups)
        with pytest.raises(BadDataError, match=rf"entry 5: {group}.{column} has 1 values; accepted: 2"):
            read_events(path, options=ReadOptions(chunk_events=4))

    def test_branch_of_another_shape(self, tmp_path: Path) -> None:
        groups = root_events.physlite()
        groups["AnalysisMuonsAuxDyn"]["pt"] = np.arange(7.0)
        with pytest.raises(BadDataError, match=r"AnalysisMuonsAuxDyn.pt holds .*accepted: a list of numbers"):
            read_events(root_events.write(tmp_path / "a.root", "physlite", groups))

    @every_kind
    def test_unit_is_the_format_s_own(self, tmp_path: Path, kind: Any) -> None:
        path = root_events.write(tmp_path / "a.root", kind)
        own, other = ("MeV", "GeV") if kind == "physlite" else ("GeV", "MeV")
        assert len(read_events(path, options=ReadOptions(unit=own))) == 7  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"unit {other}; {kind} files are in {own}"):
            read_events(path, options=ReadOptions(unit=other))  # type: ignore[arg-type]

    def test_without_uproot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = root_events.write(tmp_path / "a.root", "delphes")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"pip install 'unmask\[root\]'"):
            read_events(path)


#: Event cleaning of each format.
CUTS = {
    "delphes": "met > 20",
    "nanoaod": "met > 10 and Flag_METFilters and run > 0",
    "physlite": "met > 10 and EventInfoAuxDyn.DFCommonJets_eventClean_LooseBad and leading_jet_pt > 20",
}
REAL_FILES = os.environ.get("UNMASK_ROOT_FILES")


@pytest.mark.skipif(not REAL_FILES, reason="set UNMASK_ROOT_FILES to a folder of experiments' ROOT files to read them")
def test_files_of_experiments() -> None:
    """Every ROOT file in the folder is read whole, and in small chunks alike."""
    paths = sorted(Path(str(REAL_FILES)).glob("*.root"))
    assert paths
    for path in paths:
        events = read_events(path)
        assert events.n_objects.mean() > 0.5, path
        assert 5e3 < np.median(events.met_mev) < 500e3, path
        assert events.equals(read_events(path, options=ReadOptions(chunk_events=7))), path
        more = read_events(path, options=ReadOptions(objects=OBJECT_KINDS, cut=CUTS[detect_kind(path)]))
        assert 0 < len(more) <= len(events), path
        assert np.isin(more.row, events.row).all(), path
        np.testing.assert_array_equal(more.met_mev, events.met_mev[np.isin(events.row, more.row)])
        assert (more.tag >= 8).any(), path
