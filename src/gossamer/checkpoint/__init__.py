"""Read and write safetensors checkpoints without torch, lazily and strictly."""

from gossamer.checkpoint.errors import CheckpointError
from gossamer.checkpoint.header import TensorInfo
from gossamer.checkpoint.reader import CheckpointReader
from gossamer.checkpoint.writer import CheckpointWriter

__all__ = ["CheckpointError", "CheckpointReader", "CheckpointWriter", "TensorInfo"]
