from gossamer.train.fused.pointwise import situ
from gossamer.train.fused.linear import joint_linear, linear


def gated_mlp(x, wg, wu, wd, beta, lbeta):
    g, u = joint_linear(x, wg, wu)
    return linear(situ(g, u, beta, lbeta), wd)
