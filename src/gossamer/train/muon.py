"""Muon for matrices and AdamW for the rest, in one optimiser.

Muon replaces the momentum of a matrix by the nearest semi-orthogonal one (five Newton-Schulz steps); with the
factor 0.2 sqrt(max(rows, columns)) its updates have the size of Adam's, so one schedule serves both.  Source:
the published descriptions of Muon and of its use in Moonlight.

Shape legend: S stacked matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import Parameter

from gossamer.kernels import backend

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
PIECE = 3
"""Parameters of one shape that torch orthogonalises together; the kernels take them one by one."""
EPSILON = 1e-8
ADAM_PARTS = ("embed_tokens", "lm_head", "gate.weight", "conv1d", "res_proj", "b_proj", "weights_proj")


def orthogonalise(x: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices of [S, R, C], roughly: singular values end in about 0.7..1.2.

    In float32 where the kernels are built, in bfloat16 by torch elsewhere.
    """
    kernels = _kernels()
    if kernels is not None:
        own = x.float().contiguous().clone()
        kernels.newton_schulz(own, STEPS, COEFFICIENTS)
        return own
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

    def set_peaks(self, lr: float, matrix_lr: float) -> None:
        """Set the peak rates, which a restored state brings along from when it was saved."""
        for group in self.param_groups:
            group["peak"] = matrix_lr if group["muon"] else lr

    def set_scale(self, scale: float) -> None:
        """Set every group's rate to its peak times `scale`."""
        for group in self.param_groups:
            group["lr"] = group["peak"] * scale

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore[bad-override]
        """One update; parameters without a gradient are left alone."""
        native = _kernels() is not None
        jobs: list[Callable[[], None]] = []
        for group in self.param_groups:
            own = [p for p in group["params"] if p.grad is not None]
            if group["muon"]:
                size = 1 if native else PIECE
                jobs += [partial(self._muon, own[i : i + size], group) for i in range(0, len(own), size)]
            elif own:
                jobs += [partial(self._adam, own, group)]
        for _ in self.side_by_side(_run, jobs):
            pass

    @torch.no_grad()
    def _muon(self, own: list[Parameter], group: dict) -> None:
        for p in own:
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        rows, columns = own[0].shape[-2:]
        rate, beta = group["lr"], group["momentum"]
        keep, size = 1 - rate * group["weight_decay"], rate * 0.2 * max(rows, columns) ** 0.5
        kernels = _kernels()
        if kernels is not None and _plain(own):
            for p in own:
                arrays = _arrays(p, p.grad, self.state[p]["momentum"])
                kernels.muon_update(*arrays, beta, keep, size, STEPS, COEFFICIENTS)
            return
        updates = []
        for p in own:
            state, grad = self.state[p], p.grad
            assert grad is not None
            state["momentum"].mul_(beta).add_(grad)
            updates.append(grad.add(state["momentum"], alpha=beta))
        stacked = torch.stack(updates).reshape(-1, rows, columns)
        directions = orthogonalise(stacked).reshape(len(own), *own[0].shape)
        for p, direction in zip(own, directions, strict=True):
            p.mul_(keep).add_(direction, alpha=-size)

    @torch.no_grad()
    def _adam(self, own: list[Parameter], group: dict) -> None:
        first, second = group["betas"]
        kernels = _kernels() if _plain(own) else None
        for p in own:
            state = self.state[p]
            if not state:
                state["step"] = 0
                state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] += 1
            size = group["lr"] / (1 - first ** state["step"])
            keep = 1 - group["lr"] * group["weight_decay"] if p.ndim > 1 else 1.0
            correction = 1 / (1 - second ** state["step"])
            if kernels is not None:
                arrays = _arrays(p, p.grad, state["mean"], state["square"])
                kernels.adam_update(*arrays, first, second, keep, size, correction, EPSILON)
                continue
            state["mean"].lerp_(p.grad, 1 - first)
            state["square"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
            root = (state["square"] * correction).sqrt_().add_(EPSILON)
            p.mul_(keep).addcdiv_(state["mean"], root, value=-size)


def _run(job: Callable[[], None]) -> None:
    job()


def _plain(own: list[Parameter]) -> bool:
    """Whether the kernels can update these in place."""
    return all(p.dtype == torch.float32 and p.is_cpu and p.is_contiguous() for p in own)


def _arrays(p: Parameter, grad: Tensor | None, *state: Tensor) -> list[Tensor]:
    assert grad is not None
    return [p.detach(), grad.detach().contiguous(), *state]


@cache
def _kernels() -> ModuleType | None:
    """The kernels of training, if they are built."""
    return backend.load().train if backend.available() else None
