"""One server, from the first arrival to the last token, in events.

Between two events the batch does not change, so its decode passes are run at once in closed form. An event is an
arrival that can be admitted, a pass over a prompt, the end of a reply, or the last free page.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import TYPE_CHECKING

from ridgeline.search.engine.clock import Clock, clock_of
from ridgeline.search.engine.pages import Pages, open_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.search.engine.setting import Engine, Limits

UNSET = -1.0
"""A moment that has not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Requests of one server, in the order in which they can be started.

    Attributes:
        ready_s: When each can be started at the earliest; not descending.
        prompt_tokens: Tokens that are cached once it has been read.
        new_tokens: Tokens that must be computed for that; 0 where another server has read it.
        passes: Decode passes after its first token.
        output_tokens: Tokens of the reply.
    """

    ready_s: Sequence[float]
    prompt_tokens: Sequence[int]
    new_tokens: Sequence[int]
    passes: Sequence[int]
    output_tokens: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What happened, by request, and in sum.

    Attributes:
        start_s: When its prefill began first.
        first_token_s: When its prefill ended first.
        finish_s: When its last token was out.
        preemptions: Requests that were preempted, once for each time.
        busy_s: Seconds of each stretch in which the server worked.
        running_s: The same times the sequences that ran.
        decode_passes: Passes of decode in each stretch.
    """

    start_s: list[float]
    first_token_s: list[float]
    finish_s: list[float]
    preemptions: list[int] = field(default_factory=list[int])
    busy_s: list[float] = field(default_factory=list[float])
    running_s: list[float] = field(default_factory=list[float])
    decode_passes: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A prompt that is being read.

    Attributes:
        request: Whose.
        tokens: Of the prompt, and of what a preempted sequence had written.
        left: One number: tokens that are still to be computed.
        passes: Decode passes that follow.
    """

    request: int
    tokens: int
    left: list[int]
    passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server at work.

    Attributes:
        work: What it is given.
        limits: What it has room for.
        clock: How long passes take.
        pages: Its KV cache.
        is_chunked: Whether a pass both decodes and reads.
        is_whole: Whether room is kept for whole replies.
        log: What happened so far.
        waiting: Requests that have come and are not admitted; with what a preempted one has: tokens, passes left.
        reading: Prompts that are being read.
        ends: A heap of running sequences by the pass that ends them.
        offsets: By running sequence, in the order of their start: tokens less those of the clock at its start.
        done: One number: decode passes so far.
        offset_sum: One number: all offsets together.
    """

    work: Work
    limits: Limits
    clock: Clock
    pages: Pages
    is_chunked: bool
    is_whole: bool
    log: Log
    waiting: deque[Reading] = field(default_factory=deque[Reading])
    reading: deque[Reading] = field(default_factory=deque[Reading])
    ends: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    offsets: dict[int, int] = field(default_factory=dict[int, int])
    done: list[int] = field(default_factory=lambda: [0])
    offset_sum: list[int] = field(default_factory=lambda: [0])

    def run(self) -> None:
        """Serves everything."""
        ready_s, count = self.work.ready_s, len(self.work.ready_s)
        now_s, arrived = 0.0, 0
        while True:
            if not (self.offsets or self.reading or self.waiting):
                if arrived == count:
                    return
                now_s = max(now_s, ready_s[arrived])
            while arrived < count and ready_s[arrived] <= now_s:
                self.waiting.append(self._arriving(arrived))
                arrived += 1
            self._admit(now_s)
            if self.reading:
                now_s = self._read(now_s)
            elif self.offsets:
                is_open = not self.waiting and len(self.offsets) < self.limits.max_sequences and arrived < count
                now_s = self._decode(now_s, ready_s[arrived] - now_s if is_open else inf)

    def _arriving(self, request: int) -> Reading:
        work = self.work
        return Reading(
            request=request,
            tokens=work.prompt_tokens[request],
            left=[work.new_tokens[request]],
            passes=work.passes[request],
        )

    def _admit(self, now_s: float) -> None:
        """Starts waiting requests in order, while there is room for the first."""
        waiting, reading, offsets, start_s = self.waiting, self.reading, self.offsets, self.log.start_s
        while waiting and len(offsets) + len(reading) < self.limits.max_sequences:
            first = waiting[0]
            if not self.pages.has_room(self._kept(first)):
                return
            self.pages.take(self._kept(first))
            waiting.popleft()
            if start_s[first.request] == UNSET:
                start_s[first.request] = now_s
            if first.left[0]:
                reading.append(first)
            else:
                self._start(first, now_s)

    def _kept(self, reading: Reading) -> int:
        """Tokens for which a request must find room."""
        return self._whole(reading.request) if self.is_whole else reading.tokens

    def _whole(self, request: int) -> int:
        return self.work.prompt_tokens[request] + self.work.output_tokens[request]

    def _read(self, now_s: float) -> float:
        """One pass over prompts, with the running sequences in a chunked one; returns when it ends."""
        running = len(self.offsets) if self.is_chunked else 0
        rows = self.limits.max_pass_tokens
        if running:
            self._make_room()
            running = len(self.offsets)
            rows -= running * (self.clock.speculation.draft_tokens + 1)
        chunks = list(self._chunks(max(rows, 1)))
        tokens = sum(chunk for _, chunk, _ in chunks)
        keys = sum(chunk * (seen + chunk / 2) for _, chunk, seen in chunks) / max(tokens, 1)
        took_s = self.clock.prefill_s(tokens, keys) if tokens else 0.0
        if running:
            took_s = self.clock.mixed_s(self.clock.decode_s(running, self._keys()), took_s)
        now_s += took_s
        self._note(took_s, running or len(self.offsets), passes=1 if running else 0)
        for each, chunk, _ in chunks:
            each.left[0] -= chunk
        if running:
            self._advance(1, now_s)
        while self.reading and not self.reading[0].left[0]:
            self._start(self.reading.popleft(), now_s)
        return now_s

    def _chunks(self, rows: int) -> list[tuple[Reading, int, int]]:
        """What the next pass reads: prompts in order, how many tokens of each, and how many of it are cached."""
        chunks = list[tuple[Reading, int, int]]()
        for each in self.reading:
            left = each.left[0]
            if rows <= 0 or (chunks and not self.is_chunked and left > rows):
                break
            chunk = min(left, rows) if self.is_chunked else left
            chunks.append((each, chunk, each.tokens - left))
            rows -= chunk
        return chunks

    def _decode(self, now_s: float, until_s: float) -> float:
        """Passes of decode up to the next event; returns when the last one ends."""
        self._make_room()
        run = self.clock.decode_run(len(self.offsets), self._keys())
        passes = min(run.num_passes, self.ends[0][0] - self.done[0])
        if until_s < inf:
            passes = min(passes, run.passes_to(until_s))
        if not self.pages.has_room_each(len(self.offsets), ceil(self.clock.pass_tokens * passes)):
            passes = min(passes, self._passes_of_pages())
        passes = max(int(passes), 1)
        took_s = run.run_s(passes)
        self._note(took_s, len(self.offsets), passes=passes)
        self._advance(passes, now_s + took_s)
        return now_s + took_s

    def _note(self, took_s: float, running: int, *, passes: int) -> None:
        self.log.busy_s.append(took_s)
        self.log.running_s.append(took_s * running)
        self.log.decode_passes.append(passes)

    def _keys(self) -> float:
        """Keys that a row of the next pass reads, on average."""
        return self.offset_sum[0] / len(self.offsets) + 1 + self.clock.pass_tokens * self.done[0]

    def _tokens(self) -> int:
        """The clock of the pages: tokens of a sequence that runs since the beginning."""
        return int(self.clock.pass_tokens * self.done[0])

    def _passes_of_pages(self) -> float:
        """Passes for which there are pages."""
        if self.is_whole:
            return inf
        last = self.pages.last_clock(self._tokens())
        return inf if last == inf else ceil((last + 1) / self.clock.pass_tokens) - 1 - self.done[0]

    def _make_room(self) -> None:
        """Preempts the youngest sequences until one more pass has pages; one that is alone always goes on."""
        while self.reading or len(self.offsets) > 1:
            if self.pages.has_room_each(len(self.offsets), ceil(self.clock.pass_tokens)):
                return
            if self._passes_of_pages() >= 1:
                return
            if self.reading:
                dropped = self.reading.pop()
                self.pages.give_back(dropped.tokens)
                victim = Reading(
                    request=dropped.request, tokens=dropped.tokens, left=[dropped.tokens], passes=dropped.passes
                )
            else:
                victim = self._preempted(next(reversed(self.offsets)))
            self.log.preemptions.append(victim.request)
            self.waiting.appendleft(victim)

    def _preempted(self, request: int) -> Reading:
        """Takes a running sequence out; all tokens so far are read anew, which brings the next one."""
        tokens = min(self._leave(request) + 1, self._whole(request))
        place = next(place for place, (_, each) in enumerate(self.ends) if each == request)
        end, _ = self.ends.pop(place)
        heapify(self.ends)
        return Reading(request=request, tokens=tokens, left=[tokens], passes=end - self.done[0] - 1)

    def _start(self, reading: Reading, now_s: float) -> None:
        """A prompt has been read: a token is out, and the rest is decoded."""
        request = reading.request
        passes = reading.passes
        if self.log.first_token_s[request] == UNSET:
            self.log.first_token_s[request] = now_s
        offset = reading.tokens - self._tokens()
        self.offsets[request] = offset
        self.offset_sum[0] += offset
        if not self.is_whole:
            self.pages.follow(offset, 1)
        if passes > 0:
            heappush(self.ends, (self.done[0] + passes, request))
        else:
            self._leave(request)
            self.log.finish_s[request] = now_s

    def _advance(self, passes: int, now_s: float) -> None:
        """The batch has done so many passes; those that are through leave."""
        before = self._tokens()
        self.done[0] += passes
        if not self.is_whole:
            self.pages.grow(before, self._tokens())
        ends, done = self.ends, self.done[0]
        while ends and ends[0][0] <= done:
            request = heappop(ends)[1]
            self._leave(request)
            self.log.finish_s[request] = now_s

    def _leave(self, request: int) -> int:
        """Ends a running sequence, and returns how many tokens it had in the cache."""
        offset = self.offsets.pop(request)
        self.offset_sum[0] -= offset
        tokens = offset + self._tokens()
        if self.is_whole:
            self.pages.give_back(self._whole(request))
        else:
            self.pages.follow(offset, -1)
            self.pages.give_back(tokens)
        return tokens


def run_server(work: Work, engine: Engine) -> Log:
    """What one server does with its requests."""
    server = idle_server(work, engine)
    server.run()
    return server.log


def idle_server(work: Work, engine: Engine) -> Server:
    """A server before its first request."""
    count = len(work.ready_s)
    limits, scheduling = engine.limits, engine.scheduling
    return Server(
        work=work,
        limits=limits,
        clock=clock_of(engine.times, engine.speculation),
        pages=open_pages(limits.kv_pages, limits.page_tokens),
        is_chunked=scheduling.prefill == "chunked",
        is_whole=scheduling.admission == "whole",
        log=Log(start_s=[UNSET] * count, first_token_s=[UNSET] * count, finish_s=[UNSET] * count),
    )
