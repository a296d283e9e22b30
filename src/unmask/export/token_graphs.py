"""The masked-token detector as torch code for a graph: bins of the tokens, and all masked passes."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from unmask.artifacts import Json
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.detectors.token_explanations import TokenTexts
from unmask.errors import UsageError
from unmask.networks.masked_token_scoring import reduced_losses
from unmask.tokenizers import PAD_ID
from unmask.tokenizers.bins import phi_edges
from unmask.tokenizers.lookup_table import LookupTableTokenizer

Values = Any  # a torch tensor, or what stands for one
_PI = float(np.float32(math.pi))


class MaskedTokenGraph:
    """Tokens of a look-up table, and the loss of each when it is masked."""

    def __init__(self, detector: MaskedTokenDetector) -> None:
        if not isinstance(detector.tokenizer, LookupTableTokenizer):
            raise UsageError(f"a detector with a {detector.tokenizer.kind} tokenizer cannot be exported")
        self.detector, self.tokenizer = detector, detector.tokenizer
        self.network = detector.network_.cpu().eval()

    def words(self) -> dict[str, Json]:
        """Descriptions of tokens, for explanations."""
        return asdict(TokenTexts.of(self.tokenizer, counts_padding=self.detector.padding == "predict"))

    def __call__(self, *arrays: Values) -> dict[str, Values]:
        tokens = self.tokens(*arrays)
        logits = self.logits(tokens).log_softmax(-1)
        losses = -logits.gather(-1, tokens[..., None])[..., 0]
        is_real = tokens != PAD_ID
        is_counted = is_real if self.detector.padding == "ignore" else is_real | (tokens == PAD_ID)
        losses = torch.where(is_counted, losses, 0.0)
        score = reduced_losses(losses.double(), is_counted, is_real, self.detector.score)
        return {"score": score, "token": tokens, "token_loss": losses}

    def explain(self, outputs: dict[str, Values], *_arrays: Values) -> dict[str, Values]:
        """Probabilities (n_events, sequence, n_codes + 1) of all tokens at each masked position."""
        return {"probability": self.logits(outputs["token"]).softmax(-1)}

    def tokens(
        self, tag: Values, _energy: Values, pt: Values, eta: Values, phi: Values, met: Values, met_phi: Values
    ) -> Values:
        """Tokens (n_events, sequence), as of the tokenizer."""
        table, n = self.tokenizer, self.tokenizer.n_bins
        columns = {"pt_mev": pt, "eta": eta, "abs_eta": eta.abs(), "phi": phi, "met_mev": met, "met_phi": met_phi}
        code = torch.from_numpy(table.class_of_tag).long()[tag]
        for name in table.object_columns:
            code = code * n + self.bins(name, columns[name])
        tokens = [torch.where(tag != 0, code + 1, PAD_ID)]
        for i, name in enumerate(table.event_columns):
            tokens.append((self.bins(name, columns[name]) + (table.n_object_codes + i * n + 1))[:, None])
        return torch.cat(tokens, 1)

    def bins(self, name: str, values: Values) -> Values:
        """Bins, counted from 0: the number of inner edges at or below each value."""
        if name in self.tokenizer.edges_:
            return (values[..., None] >= torch.from_numpy(self.tokenizer.edges_[name])).sum(-1)
        # In single precision, so that -pi is a lower edge; +pi, one bin too far, comes round to it.
        turned = (values.double() - torch.where(values > 0, 2 * math.pi, -2 * math.pi)).float()
        values = torch.where(values.abs() > _PI, turned, values)
        edges = torch.from_numpy(phi_edges(self.tokenizer.n_bins)[1:].astype(np.float32))
        count = (values[..., None] >= edges).sum(-1)
        return torch.where(count == self.tokenizer.n_bins, 0, count)

    def logits(self, tokens: Values) -> Values:
        """Logits (n_events, sequence, n_codes + 1) at each position when it alone is masked."""
        network, length = self.network, tokens.shape[1]
        here = torch.eye(length, dtype=torch.bool)
        variants = torch.where(here, network.mask_id, tokens[:, None].expand(-1, length, -1)).flatten(0, 1)
        rows: Values
        rows, rotation, key_bias = network.embed(variants)
        for layer in network.transformer_layers:
            rows = layer(rows, rotation, key_bias)
        masked = (rows.unflatten(0, (-1, length)) * here[..., None]).sum(2)
        return network.predict(masked)
