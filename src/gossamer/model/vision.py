"""MoonViT-V2 and its projector: images to rows that stand in for token embeddings.

Names of modules are the published names of the tensors.  All images of a call have one size.

Shape legend: B images, P = rows * columns patches of an image, W width of the tower, H heads of width K,
N = P / (merge height * merge width) tokens of an image, D hidden width of the text network.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gossamer.checkpoint import CheckpointError, CheckpointReader
from gossamer.config.count import VISION_COMPONENTS, tensors
from gossamer.config.model import ModelConfig, VisionConfig
from gossamer.model.errors import ModelError
from gossamer.model.layers import RMSNorm, linear

NORM_EPS = 1.1920929e-07
"""Of every norm of the tower: float32's machine epsilon, torch's default where none is declared."""
ROPE_THETA = 10_000.0


class PatchEmbed(nn.Module):
    """Patches to the tower's width, plus a learned position that is stretched to the image's grid."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        side = config.patch_size
        self.proj = nn.Conv2d(3, config.hidden_size, kernel_size=side, stride=side, bias=False)
        self.pos_emb = PositionTable(config)

    def forward(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """[B, P, 3 * side * side] to [B, P, W]."""
        # A convolution whose kernel is its stride is one product per patch.
        return F.linear(patches, self.proj.weight.flatten(1)) + self.pos_emb(rows, columns)


class PositionTable(nn.Module):
    """A learned vector for each place of a square grid."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.zeros(config.pos_emb_height, config.pos_emb_width, config.hidden_size)
        )

    def forward(self, rows: int, columns: int) -> Tensor:
        """[P, W], bilinearly stretched where the grid is another."""
        if (rows, columns) == self.weight.shape[:2]:
            return self.weight.flatten(0, 1)
        grid = self.weight.permute(2, 0, 1)[None]
        stretched = F.interpolate(grid, size=(rows, columns), mode="bilinear", align_corners=False)
        return stretched[0].permute(1, 2, 0).flatten(0, 1)


def rotation(rows: int, columns: int, head_dim: int) -> Tensor:
    """Angles of 2-D rotary positions, [P, K / 2]: column at even pairs, row at odd ones.

    Pair 2i and pair 2i + 1 share the frequency theta^(-4i / K).
    """
    frequency = ROPE_THETA ** -(torch.arange(0, head_dim, 4, dtype=torch.float32) / head_dim)  # [K / 4]
    row = torch.arange(rows, dtype=torch.float32).repeat_interleave(columns)[:, None] * frequency
    column = torch.arange(columns, dtype=torch.float32).repeat(rows)[:, None] * frequency
    return torch.stack([column, row], -1).flatten(1)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turn the neighbouring pairs of x [B, H, P, K] by angles [P, K / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class MLP(nn.Module):
    """Two products with GELU, in its tanh form, between them."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.fc0 = linear(config.hidden_size, config.intermediate_size)
        self.fc1 = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, P, W] to [B, P, W]."""
        return self.fc1(F.gelu(self.fc0(x), approximate="tanh"))


class Block(nn.Module):
    """One layer: every patch of an image attends to every other."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.norm0 = RMSNorm(config.hidden_size, NORM_EPS)
        self.wqkv = linear(config.hidden_size, 3 * config.qkv_size)
        self.wo = linear(config.qkv_size, config.hidden_size)
        self.norm1 = RMSNorm(config.hidden_size, NORM_EPS)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """[B, P, W] to [B, P, W]."""
        x = x + self.wo(self._attend(self.wqkv(self.norm0(x)), angles))
        return x + self.mlp(self.norm1(x))

    def _attend(self, qkv: Tensor, angles: Tensor) -> Tensor:
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # [B, H, P, K]
        q, k = rotate(q, angles), rotate(k, angles)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class Encoder(nn.Module):
    """The blocks; it exists for the published names."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_layernorm = RMSNorm(config.hidden_size, NORM_EPS)


class VisionTower(nn.Module):
    """Patches to merged features."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.encoder = Encoder(config)

    def forward(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """[B, P, 3 * side * side] to [B, N, patches of a token * W], row-major inside a token."""
        x = self.patch_embed(patches, rows, columns)
        angles = rotation(rows, columns, self.config.qkv_size // self.config.num_heads).to(x.device)
        for block in self.encoder.blocks:
            x = block(x, angles)
        x = self.encoder.final_layernorm(x)
        high, wide = self.config.merge_size
        grid = x.unflatten(1, (rows // high, high, columns // wide, wide))
        return grid.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)


class Projector(nn.Module):
    """The published "patchmergerv2": two products with exact GELU between them, then a norm."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        merged = config.projector_hidden_size * math.prod(config.merge_size)
        self.proj = nn.Sequential(linear(merged, merged), nn.GELU(), linear(merged, config.text_hidden_size))
        self.post_norm = RMSNorm(config.text_hidden_size, config.projector_eps)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, merged] to [B, N, D]."""
        return self.post_norm(self.proj(x))


class Vision(nn.Module):
    """Tower and projector.

    Args:
        config: Their sizes.
        seed: Of random initial weights; None leaves them for `load_vision` to fill.

    Raises:
        ModelError: sizes that cannot be built.
    """

    def __init__(self, config: VisionConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        check(config)
        self.config = config
        self.vision_tower = VisionTower(config)
        self.mm_projector = Projector(config)
        if seed is not None:
            initialise(self, seed)

    def forward(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """Rows for the text network.

        Args:
            patches: [B, P, 3 * side * side], normalised, row by row.
            rows: Patches of a column of the image.
            columns: Patches of a row.

        Returns:
            [B, N, D].

        Raises:
            ModelError: a shape that does not fit.
        """
        wide = 3 * self.config.patch_size**2
        if patches.dim() != 3 or patches.shape[1:] != (rows * columns, wide):
            raise ModelError(
                f"patches must be [batch, {rows} * {columns}, {wide}], got {list(patches.shape)}"
            )
        if rows % self.config.merge_size[0] or columns % self.config.merge_size[1]:
            raise ModelError(f"{rows} x {columns} patches do not merge by {self.config.merge_size}")
        return self.mm_projector(self.vision_tower(patches, rows, columns))


def check(config: VisionConfig) -> None:
    """Refuse sizes that cannot be built.

    Raises:
        ModelError: naming the value.
    """
    if config.qkv_size % (4 * config.num_heads):
        raise ModelError(
            f"qkv_hidden_size {config.qkv_size} must be a multiple of 4 * {config.num_heads} heads: "
            "a head's pairs are shared between rows and columns"
        )
    if config.projector_hidden_size != config.hidden_size:
        raise ModelError(
            f"mm_hidden_size {config.projector_hidden_size} must equal vt_hidden_size {config.hidden_size}"
        )


def initialise(vision: Vision, seed: int) -> None:
    """Norms one, positions small, matrices normal: var 2 / inputs before a GELU, 1 / inputs elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in vision.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
                continue
            into_gelu = name.endswith(("fc0.weight", "proj.0.weight"))
            inputs = parameter[0].numel()
            scale = 0.02 if "pos_emb" in name else math.sqrt((2 if into_gelu else 1) / inputs)
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def load_vision(config: ModelConfig, reader: CheckpointReader) -> Vision:
    """Tower and projector of a checkpoint, in float32.

    Raises:
        ModelError: the config has no vision part.
        CheckpointError: a tensor is missing, mis-shaped or mis-typed; it names file and tensor.
    """
    if config.vision is None:
        raise ModelError(f"{config.name} has no vision_config")
    vision = Vision(config.vision, seed=None)
    own = vision.state_dict(keep_vars=True)
    with torch.no_grad():
        for spec in tensors(config):
            if spec.component in VISION_COMPONENTS:
                own.pop(spec.name).copy_(_tensor(spec.name, spec.shape, reader))
    assert not own, sorted(own)
    return vision.eval()


def _tensor(name: str, shape: tuple[int, ...], reader: CheckpointReader) -> Tensor:
    info = reader.info(name)
    if tuple(info.shape) != shape:
        raise CheckpointError(
            f"has shape {list(info.shape)}, the model needs {list(shape)}", file=info.file, tensor=name
        )
    if info.dtype not in ("BF16", "F16", "F32"):
        raise CheckpointError(
            f"has dtype {info.dtype}; expected one of BF16, F16, F32", file=info.file, tensor=name
        )
    tensor = torch.from_numpy(reader.array(name).copy())
    return tensor.view(torch.bfloat16) if info.dtype == "BF16" else tensor
