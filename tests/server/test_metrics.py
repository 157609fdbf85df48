"""The serving metrics over a fake engine, read as a scraper would: over HTTP, from the text."""

from dataclasses import dataclass, field

import httpx
import numpy as np
import pytest

from gateway.live import live
from gossamer.gateway.app import Page, create_app
from gossamer.gateway.echo import EchoUpstream
from gossamer.gateway.service import FrontCounts
from gossamer.server.metrics import PATH, ServingMetrics
from server.exposition_reader import read


@dataclass
class FakeHistogram:
    """Stands for its own record: one value in the first of two buckets, and ``above`` beyond them."""

    above: int = 0
    bounds: tuple = (0.5, 1.0)

    @property
    def counts(self):
        return (1, 0, self.above)

    @property
    def total(self):
        return 0.25 + 2.0 * self.above

    def record(self):
        return self


@dataclass
class FakeCounts:
    num_prompt_tokens: int = 100
    num_generated_tokens: int = 50
    num_cached_tokens: int = 32
    num_preemptions: int = 3
    finished: dict = field(default_factory=lambda: {"stop": 2, "deadline": 1})
    ttft_s: FakeHistogram = field(default_factory=lambda: FakeHistogram(1))
    inter_token_s: FakeHistogram = field(default_factory=lambda: FakeHistogram(2))
    tpot_s: FakeHistogram = field(default_factory=lambda: FakeHistogram(3))
    e2e_s: FakeHistogram = field(default_factory=lambda: FakeHistogram(4))
    queue_s: FakeHistogram = field(default_factory=lambda: FakeHistogram(5))
    batch_tokens: FakeHistogram = field(default_factory=lambda: FakeHistogram(6))
    batch_sequences: FakeHistogram = field(default_factory=lambda: FakeHistogram(7))


@dataclass
class FakeState:
    num_running: int = 4
    num_waiting: int = 9
    num_blocks: int = 8
    num_free_blocks: int = 2


@dataclass
class FakeEngine:
    metrics: FakeCounts = field(default_factory=FakeCounts)
    stats: FakeState = field(default_factory=FakeState)


def scrape(serving):
    app = create_app({"echo": EchoUpstream()}, pages={PATH: serving.page()})
    with live(app) as url:
        response = httpx.get(url + PATH, timeout=30)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(response.text)


def values(family):
    return [value for _, _, value in family["samples"]]


def test_every_number_is_under_its_name():
    found = scrape(ServingMetrics(model_name="m", engine=FakeEngine()))
    single = {
        "gossamer:num_requests_running": ("gauge", 4),
        "gossamer:num_requests_waiting": ("gauge", 9),
        "gossamer:kv_cache_usage_perc": ("gauge", 0.75),
        "gossamer:prompt_tokens_total": ("counter", 100),
        "gossamer:generation_tokens_total": ("counter", 50),
        "gossamer:prefix_cache_queries_total": ("counter", 100),
        "gossamer:prefix_cache_hits_total": ("counter", 32),
        "gossamer:num_preemptions_total": ("counter", 3),
    }
    for name, (kind, value) in single.items():
        assert (found[name]["kind"], values(found[name])) == (kind, [value])
    histograms = {
        "gossamer:time_to_first_token_seconds": 1,
        "gossamer:inter_token_latency_seconds": 2,
        "gossamer:request_time_per_output_token_seconds": 3,
        "gossamer:e2e_request_latency_seconds": 4,
        "gossamer:request_queue_time_seconds": 5,
        "gossamer:iteration_tokens_total": 6,
        "gossamer:iteration_requests": 7,
    }
    for name, above in histograms.items():
        assert found[name]["kind"] == "histogram"
        # Cumulative buckets, sum and count.
        assert values(found[name]) == [1, 1, 1 + above, 0.25 + 2 * above, 1 + above]
    reasons = found["gossamer:request_success_total"]["samples"]
    assert [(labels["finished_reason"], value) for _, labels, value in reasons] == [
        ("stop", 2),
        ("deadline", 1),
    ]
    memory = found.pop("process_resident_memory_bytes")
    assert 1 << 20 < values(memory)[0] < 1 << 40
    assert set(found) == {*single, *histograms, "gossamer:request_success_total"}
    assert all(labels["model_name"] == "m" for f in found.values() for _, labels, _ in f["samples"])
    assert all(family["help"] for family in found.values())


def test_expert_loads_by_layer_and_expert():
    loads = np.array([[0, 7, 1], [2, 0, 2**40]], dtype=np.int64)
    serving = ServingMetrics(model_name="m", engine=FakeEngine(), expert_loads=lambda: loads)
    family = scrape(serving)["gossamer:expert_load_tokens_total"]
    found = np.zeros_like(loads)
    for _, labels, value in family["samples"]:
        found[int(labels["layer"]), int(labels["expert"])] = value
    assert (family["kind"], len(family["samples"])) == ("counter", loads.size)
    assert (found == loads).all()


def test_each_scrape_asks_anew():
    engine = FakeEngine()
    serving = ServingMetrics(model_name="m", engine=engine)
    assert values(scrape(serving)["gossamer:num_requests_running"]) == [4]
    engine.stats = FakeState(num_running=5)
    engine.metrics.num_preemptions += 1
    found = scrape(serving)
    assert values(found["gossamer:num_requests_running"]) == [5]
    assert values(found["gossamer:num_preemptions_total"]) == [4]


def test_what_the_front_counted():
    counts = FrontCounts(client_retries=3, in_flight=2)
    counts.responses["/v1/models", "GET", 200] += 5
    counts.errors["invalid_api_key"] += 1
    found = scrape(ServingMetrics(model_name="m", engine=FakeEngine(), front=lambda: counts))
    ((_, labels, value),) = found["gossamer:http_requests_total"]["samples"]
    assert labels == {"model_name": "m", "handler": "/v1/models", "method": "GET", "status": "200"}
    assert value == 5
    assert found["gossamer:errors_total"]["samples"][0][1:] == (
        {"model_name": "m", "code": "invalid_api_key"},
        1,
    )
    assert values(found["gossamer:client_retries_total"]) == [3]
    assert values(found["gossamer:http_requests_in_flight"]) == [2]


def test_an_unknown_memory_is_left_out():
    serving = ServingMetrics(model_name="m", engine=FakeEngine(), resident_bytes=lambda: None)
    assert "process_resident_memory_bytes" not in scrape(serving)


def test_an_engine_without_blocks_uses_none():
    engine = FakeEngine(stats=FakeState(num_blocks=0, num_free_blocks=0))
    assert values(scrape(ServingMetrics(model_name="m", engine=engine))["gossamer:kv_cache_usage_perc"]) == [
        0
    ]


@pytest.fixture
def broken():
    def fail():
        raise RuntimeError("canary-3141")

    with live(create_app({}, pages={"/broken": Page(content_type="text/plain", write=fail)})) as url:
        yield url


def test_a_page_that_fails_is_an_error_in_the_usual_shape(broken, caplog):
    response = httpx.get(f"{broken}/broken", timeout=30)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert "canary" not in response.text + caplog.text
    refused = httpx.post(f"{broken}/broken", timeout=30)
    assert (refused.status_code, refused.json()["error"]["code"]) == (405, "method_not_allowed")
    # Without an engine that measures, there is no page.
    assert httpx.get(broken + PATH, timeout=30).status_code == 404
