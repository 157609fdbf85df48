from gossamer.mx.tensor import fake_quant
from gossamer.ops.experts import grouped_experts
from gossamer.ops.router import route as _route
from gossamer.train.fused.pointwise import situ


def experts(z, i, w, w1, w3, w2, beta, lbeta):
    return grouped_experts(z, i, w, w1, w3, w2, lambda g, u: situ(g, u, beta, lbeta))


def route(x, w, b, *, experts_per_token, renormalize, scaling):
    r = _route(x, w, b, experts_per_token=experts_per_token, renormalize=renormalize, scaling_factor=scaling)
    return r.indices, r.weights


def quantised(w, rule):
    return fake_quant(w, "mxfp4", rule)
