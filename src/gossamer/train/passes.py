"""One micro-batch forward and backward, on torch's operators or on the fused kernels.

Shape legend: B rows, T tokens, E experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from gossamer.kernels import backend
from gossamer.model.gated_dsa import AttentionMode
from gossamer.model.latent_moe import LatentMoE
from gossamer.model.trace import Trace
from gossamer.model.transformer import Transformer

Kernels = Literal["fused", "torch"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a pass computes: the loss as a share of its batch, and whose gradients.

    Attributes:
        ids: [B, T] int64.
        targets: [B, T] int64, -100 where nothing is asked.
        weights: [B, T] float32, of each target in the sum; None where all count alike.
        scale: factor of the summed cross entropy, one over the asked weight of the whole batch.
        kl_scale: factor of the indexers' loss, or None when they do not learn in this step.
        mode: attention.
        trunk: whether the cross entropy's gradient is wanted.
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor | None = None
    scale: float
    kl_scale: float | None
    mode: AttentionMode
    trunk: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a pass returns; `gradients` in the order of the parameters asked for, None where one has none."""

    loss: float
    """Scaled."""
    kl: float
    """Scaled, summed over the layers."""
    recall: float | None
    """Share of attention mass inside the indexers' selection, mean of the layers; None where not computed."""
    loads: dict[int, Tensor]
    gradients: Sequence[Tensor | None]


class Passes(Protocol):
    """The two ways to compute."""

    def begin_step(self, fake_quant: bool) -> None:
        """Called once before the passes of a step."""
        ...

    def run(self, job: Job, wanted: list[Tensor]) -> Found:
        """One pass; threads may run several at once."""
        ...


def open_passes(model: Transformer, kernels: Kernels) -> Passes:
    """The passes of a plan.

    Raises:
        TrainError: the fused kernels do not compute this architecture.
        BackendError: they are not built.
    """
    if kernels == "torch":
        return TorchPasses(model)
    backend.load()
    return FusedPasses(model)


class TorchPasses:
    """`Transformer.forward` under autocast."""

    def __init__(self, model: Transformer) -> None:
        self._model = model

    def begin_step(self, fake_quant: bool) -> None:
        """Switch the experts between their float values and those MXFP4 stores."""
        for module in self._model.modules():
            if isinstance(module, LatentMoE) and module.experts.options.fake_quant != fake_quant:
                module.experts.options = replace(module.experts.options, fake_quant=fake_quant)

    def run(self, job: Job, wanted: list[Tensor]) -> Found:
        """One pass with the model's own operators."""
        trace = Trace(want_indexer_loss=job.kl_scale is not None)
        # The cache of cast weights is shared by threads, and so would be their graphs.
        # Without BF16 instructions the products are several times slower than in float32.
        fast = "AVX512" in torch.backends.cpu.get_cpu_capability()
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False, enabled=fast):
            logits = self._model(job.ids, attention_mode=job.mode, trace=trace)
        loss = summed_loss(logits, job.targets, job.weights) * job.scale
        kl = torch.zeros(())
        if job.kl_scale is not None:
            kl = torch.stack(list(trace.indexer_losses.values())).sum() * job.kl_scale
        gradients = torch.autograd.grad(loss + kl if job.trunk else kl, wanted, allow_unused=True)
        return Found(
            loss=float(loss.detach()),
            kl=float(kl.detach()),
            recall=None,
            loads=trace.expert_loads,
            gradients=gradients,
        )


class FusedPasses:
    """`gossamer.train.fused.network`; the experts are quantised once per step instead of once per pass."""

    def __init__(self, model: Transformer) -> None:
        from gossamer.train.fused import network

        network.check(model)
        self._model, self._network = model, network
        self._moe = {m.layer: m for m in model.modules() if isinstance(m, LatentMoE)}
        self._stand_ins: dict[int, Tensor] = {}
        self._expert_weights: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def begin_step(self, fake_quant: bool) -> None:
        """Quantise the experts of this step; their gradients go straight through to the parameters."""
        self._stand_ins, self._expert_weights = {}, {}
        if not fake_quant:
            return
        from gossamer.train.fused.moe import quantised

        for layer, m in self._moe.items():
            values = []
            for parameter in (m.experts.w1, m.experts.w3, m.experts.w2):
                value = quantised(parameter.detach(), m.experts.weight_rule).requires_grad_()
                self._stand_ins[id(parameter)] = value
                values.append(value)
            self._expert_weights[layer] = (values[0], values[1], values[2])

    def run(self, job: Job, wanted: list[Tensor]) -> Found:
        """One pass on the kernels."""
        ask = self._network.Ask(
            mode=job.mode,
            want_indexer_loss=job.kl_scale is not None,
            expert_weights=self._expert_weights,
        )
        wanted = [self._stand_ins.get(id(p), p) for p in wanted]
        loss = self._network.loss_sum(self._model, job.ids, job.targets, ask, job.weights) * job.scale
        kl = torch.zeros(())
        if job.kl_scale is not None:
            kl = torch.stack(list(ask.indexer_losses.values())).sum() * job.kl_scale
        gradients = torch.autograd.grad(loss + kl if job.trunk else kl, wanted, allow_unused=True)
        recalls = list(ask.recalls.values())
        return Found(
            loss=float(loss.detach()),
            kl=float(kl.detach()),
            recall=sum(recalls) / len(recalls) if recalls else None,
            loads=ask.expert_loads,
            gradients=gradients,
        )


def summed_loss(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross entropy in float32, summed over the targets [B, T] that are not -100; there may be none.

    Args:
        logits: [B, T, V].
        targets: [B, T] int64.
        weights: [B, T], of each target in the sum.
    """
    asked = targets >= 0
    if weights is not None:
        losses = F.cross_entropy(logits[asked].float(), targets[asked], reduction="none")
        return (losses * weights[asked]).sum()
    if bool(asked.all()):
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
    return F.cross_entropy(logits[asked].float(), targets[asked], reduction="sum")
