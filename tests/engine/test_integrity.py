"""Every way in which the books can contradict each other is noticed."""

import pytest

from gossamer.engine.api import SamplingParams
from gossamer.engine.block_pool import IntegrityError
from gossamer.engine.core import EngineCore
from gossamer.engine.request import RequestState
from gossamer.engine.settings import EngineSettings

from .fake_runner import FakeRunner


def busy():
    """An engine with requests 0 and 1 running and 2 waiting."""
    core = EngineCore(FakeRunner(num_slots=2), EngineSettings(max_batch_tokens=16, seed=0))
    for first in range(3):
        core.submit([first, *range(9)], SamplingParams(max_tokens=9))
    core.step()
    core.check_integrity()
    return core, core._requests


def lose_block(core, requests):
    requests[0].blocks.pop()


def share_block(core, requests):
    requests[0].blocks[-1] = requests[1].blocks[-1]


def repeat_block(core, requests):
    requests[0].blocks[-1] = requests[0].blocks[0]


def lose_slot(core, requests):
    requests[0].slot = None


def swap_slot(core, requests):
    requests[0].slot = requests[1].slot


def hold_slot(core, requests):
    requests[2].slot = 0


def compute_too_much(core, requests):
    requests[0].num_computed = len(requests[0].token_ids)


def compute_without_blocks(core, requests):
    requests[0].token_ids += [0] * 40
    requests[0].num_computed += 20


def forget(core, requests):
    del requests[0]


def forget_place(core, requests):
    del core._scheduler.running[0]


def be_in_two_places(core, requests):
    core._scheduler.queue.push(requests[0])


def wait_running(core, requests):
    requests[2].state = RequestState.RUNNING


def run_waiting(core, requests):
    requests[0].state = RequestState.WAITING


def miscount_queue(core, requests):
    core._scheduler.queue._num_waiting += 1


def open_account(core, requests):
    core._scheduler.queue.open(requests[0])


def run_too_many(core, requests):
    core._scheduler._max_running = 1


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lose_block, "holders"),
        (share_block, "holders"),
        (repeat_block, "holds a block twice"),
        (lose_slot, "runs without a slot"),
        (swap_slot, "slot . counts 1 holders, [02] are known"),
        (hold_slot, "request 2 waits and holds slot 0"),
        (compute_too_much, "has computed"),
        (compute_without_blocks, "blocks for"),
        (forget, "by place"),
        (forget_place, "by place"),
        (be_in_two_places, "by place"),
        (wait_running, "queued and running"),
        (run_waiting, "has a slot and is waiting"),
        (miscount_queue, "counts 2 requests and holds 1"),
        (open_account, "have accounts"),
        (run_too_many, "at most 1 may"),
    ],
)
def test_a_contradiction_is_noticed(harm, text):
    core, requests = busy()
    harm(core, requests)
    with pytest.raises(IntegrityError, match=text):
        core.check_integrity()
