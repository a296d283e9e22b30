"""Figures of tokens, of trainings and of events: what they show."""

import numpy as np
import pytest

from unmask.events.objects import MET_TYPE
from unmask.events.observables import OBSERVABLES
from unmask.io.sample import load_sample
from unmask.report.other_figures import (
    draw_closure,
    draw_code_usage,
    draw_events,
    draw_token_occurrence,
    draw_training,
    draw_type_losses,
    mean_type_losses,
)
from unmask.training import EpochRecord


def history(validation: list[float], rate: list[float]) -> list[EpochRecord]:
    return [
        EpochRecord(i + 1, 9 * i + 9, r, mean_batch_loss=v, training_loss=v - 0.1, validation_loss=v,
                    events_per_second=1.0, seconds=1.0)
        for i, (v, r) in enumerate(zip(validation, rate, strict=True))
    ]  # fmt: skip


def test_training_curves_mark_the_epoch_that_was_kept() -> None:
    drawing = draw_training(history([3.0, 2.0, 2.5], [1e-3, 1e-3, 5e-4]), title="gluino")
    upper, lower = drawing.figure.axes
    training, validation, _, best = upper.lines
    assert np.asarray(training.get_ydata()).tolist() == [2.9, 1.9, 2.4]
    assert np.asarray(validation.get_xydata()).tolist() == [[1, 3.0], [2, 2.0], [3, 2.5]]
    assert np.asarray(best.get_xydata()).tolist() == [[2, 2.0]]
    legend = upper.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["training", "validation", "best epoch 2: 2.0000"]
    assert training.get_linestyle() != validation.get_linestyle()
    assert np.asarray(lower.lines[0].get_ydata()).tolist() == [1e-3, 1e-3, 5e-4]
    assert (upper.get_title("left"), lower.get_xlabel(), lower.get_ylabel()) == ("gluino", "epoch", "learning rate")
    assert lower.get_yscale() == "linear"
    assert draw_training(history([3.0, 2.0], [1e-3, 1e-5])).figure.axes[1].get_yscale() == "log"


def test_met_tokens_are_in_an_inset() -> None:
    rng = np.random.default_rng(0)
    background, signal = rng.dirichlet(np.ones(20)), rng.dirichlet(np.ones(20))
    drawing = draw_token_occurrence(background, signal, n_object_codes=16, title="4 bins", style="atlas")
    upper, lower = drawing.figure.axes
    (inset,) = upper.child_axes
    shown = [[patch.get_data().values.tolist() for patch in axis.patches] for axis in (upper, inset, lower)]
    assert shown[0] == [background[:16].tolist(), signal[:16].tolist()]
    assert shown[1] == [background[16:].tolist(), signal[16:].tolist()]
    assert shown[2] == [(signal - background)[:16].tolist()]
    assert inset.get_title() == "MET tokens"
    assert inset.get_xlim() == (16.5, 20.5)
    assert (upper.get_title("left"), upper.get_title("right")) == ("4 bins", "Simulation")
    # The inset covers no data.
    drawing.figure.draw_without_rendering()
    bottom = upper.transData.inverted().transform(inset.get_tightbbox().corners())[:, 1].min()
    assert max(background[8:16].max(), signal[8:16].max()) < bottom
    assert not draw_token_occurrence(background, signal).figure.axes[0].child_axes


def test_code_usage_and_closure_say_what_was_found() -> None:
    usage = draw_code_usage(np.array([0.5, 0.0, 0.25, 0.25]), title="vqvae").figure.axes[0]
    assert usage.get_title("left") == "vqvae: 3 of 4 codes used, perplexity 3"
    assert usage.patches[0].get_data().values.tolist() == [0.5, 0.25, 0.25, 0]  # type: ignore[attr-defined]
    pt = np.geomspace(20, 500, 400)
    closure = draw_closure({"pT [GeV]": pt, "eta": np.sin(pt)}, {"pT [GeV]": pt, "eta": np.zeros(400)})
    axes = closure.figure.axes
    assert [axis.get_xlabel() for axis in axes] == ["", "", "pT [GeV]", "eta"]
    assert [axis.get_xscale() for axis in axes[2:]] == ["log", "linear"]
    ratio = axes[2].patches[0].get_data().values  # type: ignore[attr-defined]
    assert np.nanmin(ratio) == np.nanmax(ratio) == 1


def test_loss_by_type_of_object() -> None:
    rng = np.random.default_rng(3)
    n = 400
    types = np.tile([1, 1, 2, 0, MET_TYPE], (n, 1))
    event = rng.normal(size=(n, 1))  # tokens of an event are alike
    loss = np.where(types == 0, 99, types + event + 0.01 * rng.normal(size=types.shape))
    is_signal = np.arange(n) % 4 == 0
    loss[is_signal] += 2
    weight = rng.uniform(0.5, 2, n)
    means = mean_type_losses(loss, types, weight)
    assert list(means) == [1, 2, MET_TYPE]
    assert means[2][0] == pytest.approx(np.average(loss[:, 2], weights=weight))
    # Two jets that are alike in each event tell no more than one.
    assert means[1][1] == pytest.approx(means[2][1], rel=0.02)
    drawing = draw_type_losses(loss, types, is_signal, weight, style="cms")
    axis = drawing.figure.axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["jet", "b-jet", "MET"]
    background, signal = axis.containers
    assert np.allclose(
        signal[0].get_ydata(),
        [mean for mean, _ in mean_type_losses(loss[is_signal], types[is_signal], weight[is_signal]).values()],
    )
    assert (signal[0].get_ydata() - background[0].get_ydata()).mean() == pytest.approx(2, abs=0.4)
    assert signal[0].get_marker() != background[0].get_marker()
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["background", "signal"]


def test_standard_error_of_type_losses_covers_the_truth() -> None:
    rng = np.random.default_rng(11)
    is_inside = []
    for _ in range(400):
        types = (rng.random((100, 4)) < 0.5).astype(int)
        loss = 5 + rng.normal(size=(100, 1)) + rng.normal(size=(100, 4))
        mean, error = mean_type_losses(loss, types, rng.uniform(0.5, 2, 100))[1]
        is_inside.append(abs(mean - 5) < error)
    assert np.mean(is_inside) == pytest.approx(0.683, abs=0.07)


def test_events_are_normalised_by_class() -> None:
    events = load_sample("gluino")
    drawing = draw_events(events)
    labels = [axis.get_xlabel() for axis in drawing.figure.axes]
    observables = [one.axis_label for one in OBSERVABLES.values()]
    assert labels == [*observables, "pT of all objects [GeV]", "eta of all objects"]
    assert labels[1:3] == ["HT [GeV]", "MET [GeV]"]
    for patch in drawing.figure.axes[0].patches:
        assert patch.get_data().values.sum() == pytest.approx(1)  # type: ignore[attr-defined]
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == [
        f"background ({np.count_nonzero(events.label == 0):,})",
        f"signal ({np.count_nonzero(events.label == 1):,})",
    ]
