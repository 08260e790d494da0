"""A stream in slow motion: a controller is asked, segments arrive in order, shards begin when they can."""

from collections import deque

from offers import Offer

from sakura.control.interface import Controller, Order

MAX_ORDERS = 1_000


class Stream:
    """Follows a controller's orders over a link of ``mbps`` and checks what must hold for each of them."""

    def __init__(self, offer: Offer, controller: Controller, *, mbps: float, predicted_mbps: float) -> None:
        self.state = offer.state(predicted_mbps)
        self.controller, self.mbps = controller, mbps
        self.orders: list[Order] = []
        self.waits_for: list[frozenset[int]] = []  # of each decided shard
        self.sent: deque[int] = deque()

    def ask(self) -> None:
        """Until the controller has nothing more to order for now."""
        while (order := self.controller.next(self.state)) is not None:
            self._take(order)
            assert len(self.orders) < MAX_ORDERS

    def _take(self, order: Order) -> None:
        state = self.state
        ladder = state.ladder(order.shard)
        assert order.reason
        assert order.budget_bytes >= 0
        assert set(ladder.segments(order.least)) <= set(ladder.segments(order.rung))
        missing = state.to_request(ladder, order.rung)
        segments = missing if order.part is None else list(order.part)
        assert len(set(segments)) == len(segments)
        assert set(segments) <= set(missing), "nothing is asked for twice"
        if order.shard == state.decided:
            state.decided += 1
            self.waits_for.append(frozenset(ladder.segments(order.least)))
        else:
            assert state.ladder_of[order.shard] in state.ladder_of[: state.decided], "only what is in use is refined"
            assert segments, "a refinement asks for something"
        state.requested.update(segments)
        state.outstanding_bytes += state.bytes_of(segments)
        self.sent.extend(segments)
        self.orders.append(order)

    def arrive(self) -> None:
        """The next segment comes, and shards that have become complete begin."""
        state = self.state
        if self.sent:
            segment = self.sent.popleft()
            state.arrived.add(segment)
            state.outstanding_bytes -= state.segment_bytes[segment]
            state.now_s += 8e-6 * state.segment_bytes[segment] / self.mbps
            state.measured = True
        else:
            state.now_s = max(state.now_s, state.free_s) + 0.001
        while state.begun < state.decided and self.waits_for[state.begun] <= state.arrived:
            if state.begun and state.now_s < state.free_s - state.shard_s:
                break  # execution is a shard behind already
            state.begun += 1
            state.free_s = max(state.now_s, state.free_s) + state.shard_s

    def run(self) -> None:
        """Until all shards have begun and nothing is under way; the controller must have nothing more to say then."""
        for _ in range(MAX_ORDERS):
            self.ask()
            if self.state.begun == self.state.geometry.shards and not self.sent:
                return
            self.arrive()
        raise AssertionError(f"stuck with {self.state.begun} of {self.state.geometry.shards} shards begun")
