"""The parameters of a network as one vector, so that an optimizer does a few operations, not a few for each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Matrix products are slow with numbers that do not start at a multiple of so many.
_ALIGNED = 16


class FlatParameters:
    """The trained parameters of a network, moved into one vector that stays theirs.

    Attributes
    ----------
    vector : what the optimizer changes; it ends up with the gradients of all parameters after :meth:`gather`.
    """

    def __init__(self, network: nn.Module) -> None:
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        sizes = [-(-parameter.numel() // _ALIGNED) * _ALIGNED for parameter in self.parameters]
        self.vector = nn.Parameter(torch.zeros(sum(sizes), device=self.parameters[0].device))
        self.vector.grad = torch.zeros_like(self.vector)
        for parameter, place in zip(self.parameters, torch.split(self.vector.detach(), sizes), strict=True):
            place = place[: parameter.numel()].view_as(parameter)
            parameter.data = place.copy_(parameter.detach())
        self._gaps = [self.vector.new_zeros(size - p.numel()) for size, p in zip(sizes, self.parameters, strict=True)]

    def forget_gradients(self) -> None:
        """Let the next gradients be those of one loss alone."""
        for parameter in self.parameters:
            parameter.grad = None

    def gather(self) -> Tensor:
        """Put the gradients of the parameters into that of the vector, 0 for what the loss does not depend on."""
        parts = []
        for parameter, gap in zip(self.parameters, self._gaps, strict=True):
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            parts += [gradient.flatten(), gap]
        assert self.vector.grad is not None
        torch.cat(parts, out=self.vector.grad)
        return self.vector.grad
