"""The serial part of the chunked form: S_{n+1} = P_n S_n + Q_n.

Shape legend: M = batch*heads, N chunks, K key channels, V value channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transition: Tensor, inflow: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        states = torch.empty_like(inflow)
        s = start
        for n in range(inflow.shape[1]):
            states[:, n] = s
            s = torch.baddbmm(inflow[:, n], transition[:, n], s)
        ctx.save_for_backward(transition, states)
        return states, s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor]:  # pyrefly: ignore[bad-override]
        grad_states, grad_end = grad_outputs
        transition, states = ctx.saved_tensors
        grad_inflow = torch.empty_like(states)
        d = grad_end
        for n in reversed(range(states.shape[1])):
            grad_inflow[:, n] = d
            d = torch.baddbmm(grad_states[:, n], transition[:, n].transpose(-1, -2), d)
        return grad_inflow @ states.transpose(-1, -2), grad_inflow, d


def linear_scan(transition: Tensor, inflow: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk and after the last one.

    Args:
        transition: P [M, N, K, K].
        inflow: Q [M, N, K, V].
        start: S_0 [M, K, V].

    Returns:
        S_0 .. S_{N-1} as [M, N, K, V], and S_N [M, K, V].
    """
    return _LinearScan.apply(transition, inflow, start)
