"""Muon for matrices and AdamW for the rest, in one optimiser.

Muon replaces the momentum of a matrix by the nearest semi-orthogonal one (five Newton-Schulz steps); with the
factor 0.2 sqrt(max(rows, columns)) its updates have the size of Adam's, so one schedule serves both.  Source:
the published descriptions of Muon and of its use in Moonlight.

Shape legend: S stacked matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import Parameter

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
PIECE = 3
"""Parameters of one shape that are orthogonalised together."""
ADAM_PARTS = ("embed_tokens", "lm_head", "gate.weight", "conv1d", "res_proj", "b_proj", "weights_proj")


def orthogonalise(x: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices of [S, R, C], roughly: singular values end in about 0.7..1.2."""
    y = x.bfloat16()
    tall = y.shape[-2] > y.shape[-1]
    if tall:
        y = y.transpose(-1, -2)
    y = y / (y.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = y @ y.transpose(-1, -2)
        y = a * y + (b * gram + c * (gram @ gram)) @ y
    return (y.transpose(-1, -2) if tall else y).float()


def uses_muon(name: str, parameter: Parameter) -> bool:
    """Matrices inside the network: not the embedding, the head, the router, nor anything thin."""
    return (
        parameter.ndim in (2, 3)
        and min(parameter.shape[-2:]) >= 16
        and not any(part in name for part in ADAM_PARTS)
    )


class MuonAdam(torch.optim.Optimizer):
    """Muon where `uses_muon` says so, AdamW elsewhere; no weight decay on vectors.

    Args:
        named: the parameters by name.
        lr: peak rate of Adam parameters; a schedule multiplies the groups' `lr`.
        matrix_lr: peak rate of Muon parameters.
        momentum: of Muon, Nesterov's form.
        betas: of Adam.
        weight_decay: decoupled, for all but vectors.
        side_by_side: `map`, or a pool's `map`: matrices are orthogonalised in independent pieces.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, Parameter]],
        *,
        lr: float,
        matrix_lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.05,
        side_by_side: Callable[..., Iterable] = map,
    ):
        by_shape: dict[tuple[int, ...], list[Parameter]] = {}
        rest: list[Parameter] = []
        for name, parameter in named:
            if uses_muon(name, parameter):
                by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
            else:
                rest.append(parameter)
        groups = [{"params": own, "peak": matrix_lr, "muon": True} for _, own in sorted(by_shape.items())]
        groups.append({"params": rest, "peak": lr, "muon": False})
        self.side_by_side = side_by_side
        super().__init__(
            groups, {"lr": lr, "momentum": momentum, "betas": betas, "weight_decay": weight_decay}
        )

    def set_scale(self, scale: float) -> None:
        """Set every group's rate to its peak times `scale`."""
        for group in self.param_groups:
            group["lr"] = group["peak"] * scale

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore[bad-override]
        """One update; parameters without a gradient are left alone."""
        pieces: list[tuple[list[Parameter], dict]] = []
        for group in self.param_groups:
            own = [p for p in group["params"] if p.grad is not None]
            if group["muon"]:
                pieces += [(own[i : i + PIECE], group) for i in range(0, len(own), PIECE)]
            elif own:
                self._adam(own, group)
        for _ in self.side_by_side(self._muon, pieces):
            pass

    @torch.no_grad()
    def _muon(self, piece: tuple[list[Parameter], dict]) -> None:
        own, group = piece
        updates = []
        for p in own:
            state, grad = self.state[p], p.grad
            assert grad is not None
            if not state:
                state["momentum"] = torch.zeros_like(p)
            state["momentum"].mul_(group["momentum"]).add_(grad)
            updates.append(grad.add(state["momentum"], alpha=group["momentum"]))
        rows, columns = own[0].shape[-2:]
        stacked = torch.stack(updates).reshape(-1, rows, columns)
        directions = orthogonalise(stacked).reshape(len(own), *own[0].shape)
        scale = group["lr"] * 0.2 * max(rows, columns) ** 0.5
        for p, direction in zip(own, directions, strict=True):
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-scale)

    def _adam(self, own: list[Parameter], group: dict) -> None:
        first, second = group["betas"]
        for p in own:
            state = self.state[p]
            if not state:
                state["step"] = 0
                state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] += 1
            state["mean"].lerp_(p.grad, 1 - first)
            state["square"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
            size = group["lr"] / (1 - first ** state["step"])
            root = (state["square"] / (1 - second ** state["step"])).sqrt_().add_(1e-8)
            if p.ndim > 1:
                p.mul_(1 - group["lr"] * group["weight_decay"])
            p.addcdiv_(state["mean"], root, value=-size)
