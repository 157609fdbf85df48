"""How often a model would itself write the tokens that decide where to copy from.

Every earlier token is the right one, so a token is judged by itself: a model that goes on with any copy but
picks the wrong place to begin one has a low mean loss and no right call; here it shows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gossamer.train.dialogue.decisive import KINDS
from gossamer.train.streams import RowSource


@torch.inference_mode()
def probe(forward: Callable[[Tensor], Tensor], rows: RowSource, count: int) -> dict[str, dict[str, float]]:
    """Accuracy and loss by kind of token; "rest" is all that the assistant says besides.

    Args:
        forward: ids [1, T] to logits [1, T, V].
        rows: dialogues.
        count: how many rows.

    Returns:
        Per kind that occurs: "tokens", "right" (a share) and "nats" (per token).
    """
    sums = {kind: [0, 0, 0.0] for kind in (*KINDS[1:], "rest")}
    for number in range(count):
        row = rows.row(number)
        asked = torch.from_numpy(row.targets >= 0)
        target = torch.from_numpy(row.targets)[asked]
        logits = forward(torch.from_numpy(row.ids)[None])[0][asked].float()
        right = logits.argmax(-1) == target
        nats = -torch.log_softmax(logits, -1).gather(1, target[:, None])[:, 0]
        codes = torch.from_numpy(row.decisive)[asked]
        for code, kind in enumerate(("rest", *KINDS[1:])):
            own = codes == code
            entry = sums[kind]
            entry[0] += int(own.sum())
            entry[1] += int(right[own].sum())
            entry[2] += float(nats[own].sum())
    return {
        kind: {"tokens": tokens, "right": round(good / tokens, 4), "nats": round(nats / tokens, 4)}
        for kind, (tokens, good, nats) in sums.items()
        if tokens
    }
