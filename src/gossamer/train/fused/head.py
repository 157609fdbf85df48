"""Output head and cross entropy in one operation: logits exist for a block of rows at a time.

Shape legend: M rows, D hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gossamer.train.fused.native import call


def head_loss(h: Tensor, w: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of softmax(h W^T) in nats, summed over the rows that are asked.

    The gradients are formed along with the loss, while the logits of a block are in the cache; backward only
    scales them.

    Args:
        h: [M, D] float32.
        w: [V, D] float32.
        targets: [M] int64, -100 where nothing is asked; such rows cost nothing.

    Returns:
        A scalar, float32.

    Raises:
        ValueError: shapes do not fit, or a target is neither -100 nor in the vocabulary.
    """
    return _HeadLoss.apply(h, w, targets, torch.is_grad_enabled())


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, w: Tensor, targets: Tensor, graded: bool) -> Tensor:
        hidden, weight = h.detach().contiguous(), w.detach().contiguous()
        dh = torch.empty_like(hidden) if graded and ctx.needs_input_grad[0] else None
        dw = torch.empty_like(weight) if graded and ctx.needs_input_grad[1] else None
        loss = call("head_loss", hidden, weight, targets.contiguous(), dh, dw)
        ctx.gradients = dh, dw
        return torch.tensor(loss, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        dh, dw = ctx.gradients
        return None if dh is None else dh * scale, None if dw is None else dw * scale, None, None
