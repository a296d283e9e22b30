"""Training steps side by side: ours, the same model of `nn.TransformerEncoder`, and Hugging Face's BERT of that shape.

On a CPU, one core; where there is CUDA ours is captured as a graph, as in the training loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.masked_token_scoring import background_tokens
from benchmarks.timing import best_times
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.events.event_set import BACKGROUND, EventSet
from unmask.io.sample import load_sample
from unmask.networks.masked_token import MaskedTokenTransformer
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.training import Reporter, TrainingSettings
from unmask.training.settings import Precision

N_CODES, HIDDEN, N_HEADS, N_LAYERS, FFN, DROPOUT, BATCH = 456, 64, 4, 2, 128, 0.05, 512
Step = Callable[[], None]


class PlainEncoder(nn.Module):
    """What one writes with torch's own layers: the head at all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_CODES + 2, HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, N_HEADS, FFN, DROPOUT, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, N_LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(HIDDEN, N_CODES + 1)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits


def run() -> dict[str, float]:
    """Events a second of each, and how many times faster ours is."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tokens = background_tokens("gluino")[:BATCH].long().to(device)
        contestants = {"unmask": ours(tokens), "nn.TransformerEncoder": plain(tokens)}
        if find_spec("transformers"):
            contestants["BertForMaskedLM"] = bert(tokens)
        seconds = dict(zip(contestants, best_times(*map(_repeated, contestants.values()), repeats=5), strict=True))
        figures = {f"{device.type}, {name}: events/s": 10 * BATCH / taken for name, taken in seconds.items()}
        wanted = {"nn.TransformerEncoder": 1.5, "BertForMaskedLM": 2.0} if device.type == "cpu" else {}
        for name, taken in list(seconds.items())[1:]:
            ratio = f"{device.type}: times {name} (target {wanted.get(name, 3.0):g})"
            figures[ratio] = taken / seconds["unmask"]
        if device.type == "cuda":
            figures |= epochs_on_cuda()
        return figures
    finally:
        torch.set_num_threads(n_threads)


def ours(tokens: Tensor) -> Step:
    """A step as the training loop makes it."""
    network = MaskedTokenTransformer(N_CODES, tokens.shape[1], ffn_expansion=2, dropout=DROPOUT).to(tokens.device)
    step = _training_step(network, lambda: network.loss(tokens, network.draw_masked_position(tokens)))
    if tokens.device.type != "cuda":
        return step
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    # The graph writes where the network and the optimizer lie, so they must outlive it.
    return partial(_replay, graph, step)


def _replay(graph: torch.cuda.CUDAGraph, captured: Step) -> None:  # noqa: ARG001
    graph.replay()


class Watch(Reporter):
    """Measures what share of the time from the start of the second epoch to the end of the last the GPU works."""

    def __init__(self) -> None:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.started = 0.0

    def epoch_started(self, epoch: int, n_steps: int) -> None:  # noqa: ARG002
        if epoch == 1:
            self.profile.start()
            self.started = time.perf_counter()

    def busy_share(self) -> float:
        """Call it when the training is done."""
        torch.cuda.synchronize()
        seconds = time.perf_counter() - self.started
        self.profile.stop()
        return sum(event.self_device_time_total for event in self.profile.key_averages()) / 1e6 / seconds


def epochs_on_cuda() -> dict[str, float]:
    """Whole epochs of the training loop: events/s in each precision, and the share of the time without GPU work."""
    events = load_sample("gluino")
    background = events[events.label == BACKGROUND]
    train = EventSet.concatenate([background] * (150_000 // len(background)))  # as many as the study has
    tokenizer, figures = LookupTableTokenizer(4).fit(background), {}

    def fit(precision: Precision, reporter: Reporter | None) -> MaskedTokenDetector:
        settings = TrainingSettings(max_epochs=6, batch_size=BATCH, device="cuda", precision=precision)
        return MaskedTokenDetector(tokenizer, ffn_expansion=2, training=settings).fit(
            train, background, reporter=reporter
        )

    for precision in get_args(Precision):
        records = fit(precision, None).history_[1:]  # the first captures the step
        figures[f"cuda, {precision}: events/s in an epoch"] = max(record.events_per_second for record in records)
        figures[f"cuda, {precision}: validation loss after {len(records) + 1} epochs"] = records[-1].validation_loss
    watch = Watch()
    fit("float32", watch)
    figures["cuda: share of a training after its first epoch without GPU work"] = 1 - watch.busy_share()
    return figures


def plain(tokens: Tensor) -> Step:
    """The same model of torch's own layers."""
    network = PlainEncoder().to(tokens.device)

    def loss() -> Tensor:
        masked, truth = _masked(tokens)
        return F.cross_entropy(network(masked).flatten(0, 1), truth.flatten(), ignore_index=-100)

    return _training_step(network, loss)


def bert(tokens: Tensor) -> Step:
    """Hugging Face's masked language model of the same shape."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=N_CODES + 2,
        hidden_size=HIDDEN,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=FFN,
        hidden_dropout_prob=DROPOUT,
        attention_probs_dropout_prob=DROPOUT,
        max_position_embeddings=tokens.shape[1],
    )
    network = BertForMaskedLM(config).to(tokens.device)

    def loss() -> Tensor:
        masked, truth = _masked(tokens)
        found: Tensor = network(input_ids=masked, labels=truth).loss
        return found

    return _training_step(network, loss)


def _training_step(network: nn.Module, loss: Callable[[], Tensor]) -> Step:
    network.train()
    is_cuda = next(network.parameters()).device.type == "cuda"
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True, capturable=is_cuda)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def _masked(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens with one masked an event, and the truth at that position alone."""
    position = torch.randint(tokens.shape[1], (len(tokens), 1), device=tokens.device)
    truth = torch.full_like(tokens, -100).scatter(1, position, tokens.gather(1, position))
    return tokens.scatter(1, position, N_CODES + 1), truth


def _repeated(step: Step) -> Step:
    def steps() -> None:
        for _ in range(10):
            step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return steps
