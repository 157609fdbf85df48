"""What a model computes inside on given rows, and linear maps fitted to it.

Shape legend: B rows, T tokens, D hidden width, C candidates of a residual mix, N places, S code width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gossamer.model.layers import RMSNorm
from gossamer.model.trace import Trace
from gossamer.model.transformer import Transformer

RIDGE = 1e-3
"""Added to the mean variance of the inputs, as a share of it."""


@torch.no_grad()
def normed(model: Transformer, ids: Tensor, modules: Sequence[nn.Module]) -> list[Tensor]:
    """Per module [B, T, ...]: the output of a norm, the input of anything else; dense attention."""
    found: list[list[Tensor]] = [[] for _ in modules]

    def keep(number: int):
        def hook(module: nn.Module, inputs: tuple, output: Tensor) -> None:
            found[number].append((output if isinstance(module, RMSNorm) else inputs[0])[0])

        return hook

    hooks = [module.register_forward_hook(keep(i)) for i, module in enumerate(modules)]
    for row in ids:
        model(row[None], attention_mode="dense")
    for hook in hooks:
        hook.remove()
    return [torch.stack(rows) for rows in found]


@torch.no_grad()
def candidates(model: Transformer, ids: Tensor, layer: int | None) -> Tensor:
    """[C, B, T, D]: what is mixed for the attention of a layer, or for the output head where it is None."""
    wanted = model.config.num_layers if layer is None else layer
    found: list[Tensor] = []
    for row in ids:
        trace = Trace(want_mix=wanted)
        model(row[None], attention_mode="dense", trace=trace)
        assert trace.candidates is not None
        found.append(trace.candidates[:, 0])
    return torch.stack(found, 1)


def ridge(x: Tensor, y: Tensor, share: float = RIDGE) -> Tensor:
    """[out, in]: the linear map from x [N, in] to y [N, out] with the least squared error."""
    x, y = x.double(), y.double()
    gram = x.T @ x / len(x)
    gram += share * gram.trace() / len(gram) * torch.eye(len(gram), dtype=gram.dtype)
    return torch.linalg.solve(gram, x.T @ y / len(x)).T.float()


def token_codes(x: Tensor, ids: Tensor, size: int) -> Tensor:
    """[N, size]: codes of the tokens `ids` [N] that can be read best from x [N, D]; one token has one code.

    The directions in which tokens differ most, beside how much x differs for one token (linear
    discriminants), at equal strength and turned at random.
    """
    x = x.double()
    num_types = int(ids.max()) + 1
    count = torch.zeros(num_types, dtype=x.dtype).index_add_(0, ids, torch.ones_like(x[:, 0]))
    mean = torch.zeros(num_types, x.shape[1], dtype=x.dtype).index_add_(0, ids, x)
    mean = mean / count.clamp(min=1)[:, None]
    within = x - mean[ids]
    # Frequent tokens count for more, but not in proportion.
    weight = count.sqrt() / count.sqrt().sum()
    mean = mean - weight @ mean
    between = (mean * weight[:, None]).T @ mean
    noise = within.T @ within / len(x)
    noise += RIDGE * (noise.trace() + between.trace()) / len(noise) * torch.eye(len(noise), dtype=x.dtype)
    unmix = torch.linalg.inv(torch.linalg.cholesky(noise))
    found = torch.linalg.eigh(unmix @ between @ unmix.T).eigenvectors[:, -size:]
    codes = mean @ (unmix.T @ found)
    codes = codes / (weight @ codes.square()).sqrt()
    turn = torch.randn(size, size, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    return (codes @ torch.linalg.qr(turn).Q)[ids].float()
