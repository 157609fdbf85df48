"""Runs in the vision environment: nemo-automodel's K3 tower and projector, and transformers' kimi_k25.

worker_loop.py says how it is asked.  Weights arrive and gradients leave under the published names.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import sys
import types
import warnings
from pathlib import Path

# The stretching of positions is compiled when called, which says nothing about what it computes.
os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from worker_loop import serve  # noqa: E402

torch.set_num_threads(1)


def nemo():
    """The file alone: its package imports what is not installed here."""
    package = importlib.util.find_spec("nemo_automodel").submodule_search_locations[0]
    path = Path(package) / "components" / "models" / "kimi_k3" / "vision.py"
    spec = importlib.util.spec_from_file_location("nemo_kimi_k3_vision", path)
    module = sys.modules.get(spec.name)
    if module is None:
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def built(sizes):
    """Tower and projector as K3's config builds them."""
    from transformers import PretrainedConfig

    source = nemo()
    config = PretrainedConfig(**sizes)
    config._attn_implementation = "eager"
    tower = source.MoonViT3dPretrainedModel(config)
    for block in tower.encoder.blocks:
        block.attn_implementation = "eager"
    projector = source.PatchMergerMLPV2(
        types.SimpleNamespace(
            mm_hidden_size=sizes["hidden_size"],
            merge_kernel_size=sizes["merge_kernel_size"],
            projector_ln_eps=sizes["projector_ln_eps"],
            hidden_size=sizes["text_hidden_size"],
        )
    )
    return torch.nn.ModuleDict({"vision_tower": tower, "mm_projector": projector}).float()


def images(arrays, *, sizes, grids):
    """Rows of each image, and the gradient of every weight under their sum times the probe."""
    module = built(sizes)
    weights = {n.removeprefix("w."): torch.from_numpy(v) for n, v in arrays.items() if n.startswith("w.")}
    module.load_state_dict(weights)
    side = sizes["patch_size"]
    patches = torch.from_numpy(arrays["patches"]).view(-1, 3, side, side)
    merged = module["vision_tower"](patches, torch.tensor([[1, *grid] for grid in grids]))
    rows = torch.cat(list(module["mm_projector"](merged)))
    (rows * torch.from_numpy(arrays["probe"])).sum().backward()
    found = {f"grad.{n}": p.grad.numpy() for n, p in module.named_parameters()}
    return {"rows": rows.detach().numpy()} | found


def positions(arrays, *, rows, columns):
    """kimi_k25's stretched table, in the mode that K3 uses."""
    from transformers.models.kimi_k25 import modeling_kimi_k25 as m

    high, wide, width = arrays["table"].shape
    config = types.SimpleNamespace(hidden_size=width, pos_emb_time=4, pos_emb_height=high, pos_emb_width=wide)
    module = m.Kimi_K25VisionPositionEmbeddings(config)
    module.interpolation_mode = "bilinear"
    with torch.no_grad():
        module.position_embeddings.copy_(torch.from_numpy(arrays["table"]))
        grid = torch.tensor([[1, rows, columns]])
        return {"table": module(torch.zeros(rows * columns, width), grid).numpy()}


def rotation(arrays, *, rows, columns):
    """kimi_k25's rotation of x [P, K], whose pairs it keeps as two halves."""
    from transformers.models.kimi_k25 import modeling_kimi_k25 as m

    x = torch.from_numpy(arrays["x"])
    config = types.SimpleNamespace(
        rope_parameters={"rope_type": "axial", "rope_theta": 1e4}, head_dim=x.shape[-1]
    )
    place = torch.arange(rows * columns)
    cos, sin = m.Kimi_K25VisionRotaryEmbedding(config)(
        x, torch.stack([place // columns, place % columns], -1)
    )
    halves = torch.cat([x[:, 0::2], x[:, 1::2]], -1)[:, None]
    turned, _ = m.apply_rotary_pos_emb_vision(halves, halves, cos, sin)
    first, second = turned[:, 0].chunk(2, -1)
    return {"turned": torch.stack([first, second], -1).flatten(-2).numpy()}


def sizes(arrays, *, in_patch_limit):
    """kimi_k25's rule with K3's limits: of each (width, height) the resized and the padded width, height."""
    # The function alone: its file imports torchvision, for what is not asked here.
    package = importlib.util.find_spec("transformers").submodule_search_locations[0]
    source = Path(package) / "models" / "kimi_k25" / "image_processing_kimi_k25.py"
    tree = ast.parse(source.read_text())
    wanted = [node for node in tree.body if getattr(node, "name", None) == "navit_resize"]
    space = {"math": math}
    exec(compile(ast.Module(wanted, []), str(source), "exec"), space)
    navit_resize, found = space["navit_resize"], []
    for width, height in arrays["sizes"].tolist():
        (new_height, new_width), (high, wide) = navit_resize(height, width, 14, 2, in_patch_limit, 512)
        found.append([new_width, new_height, wide, high])
    return {"sizes": np.array(found)}


serve({"images": images, "positions": positions, "rotation": rotation, "sizes": sizes})
