"""The router of the mixture of experts."""

from gossamer.ops.router.naive import naive_route
from gossamer.ops.router.topk import Routing, best, expert_load, route

__all__ = ["Routing", "best", "expert_load", "naive_route", "route"]
