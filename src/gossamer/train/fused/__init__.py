"""The network of training on native kernels: what `gossamer.model` defines, forward and backward, faster."""
