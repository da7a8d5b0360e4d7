"""Pages of one server's KV cache, counted exactly for all running sequences at once.

Running sequences advance together, so a common clock counts their tokens: a sequence with `offset` (its tokens less the
clock's, when it joined) has `offset + clock` tokens cached. It takes a new page whenever that is 1 more than a multiple
of a page, so sequences are told apart, for what comes, by one residue alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """How many pages are used, and when running sequences will take more.

    Attributes:
        num_pages: Of the server; infinite where nobody counts.
        page_tokens: Tokens of a page.
        used: One number: pages that are taken.
        takers: By residue of the clock: running sequences that take a page then.
    """

    num_pages: float
    page_tokens: int
    used: list[int]
    takers: list[int] = field(default_factory=list[int])

    def count(self, tokens: int) -> int:
        """Pages that so many tokens fill.

        >>> pages = open_pages(None, 16)
        >>> pages.count(16), pages.count(17)
        (1, 2)
        """
        return -(-tokens // self.page_tokens)

    def has_room(self, tokens: int) -> bool:
        """Whether so many more tokens of one sequence have room."""
        return self.used[0] + self.count(tokens) <= self.num_pages

    def has_room_each(self, sequences: int, tokens: int) -> bool:
        """Whether so many running sequences surely have room for so many more tokens each: a quick answer."""
        return self.used[0] + sequences * self.count(tokens) <= self.num_pages

    def take(self, tokens: int) -> None:
        """Takes what tokens of a sequence need."""
        self.used[0] += self.count(tokens)

    def give_back(self, tokens: int) -> None:
        """Gives back what tokens of a sequence have."""
        self.used[0] -= self.count(tokens)

    def grow(self, clock: int, later: int) -> None:
        """Takes what running sequences need until the clock has come from one reading to a later one."""
        self.used[0] += self._taken(clock, later)

    def _taken(self, clock: int, later: int) -> int:
        """Pages that running sequences take between two readings of the clock."""
        size = self.page_tokens
        cycles, rest = divmod(later - clock, size)
        start = (clock + 1) % size
        taken = sum(self.takers[start : start + rest]) + sum(self.takers[: max(start + rest - size, 0)])
        return taken + cycles * sum(self.takers) if cycles else taken

    def last_clock(self, clock: int) -> float:
        """The latest reading of the clock until which there is a page for everyone."""
        growing = sum(self.takers)
        if self.num_pages == inf or not growing:
            return inf
        cycles, free = divmod(int(self.num_pages) - self.used[0], growing)
        later = clock + int(cycles) * self.page_tokens
        while True:
            free -= self.takers[(later + 1) % self.page_tokens]
            if free < 0:
                return later
            later += 1

    def follow(self, offset: int, change: int) -> None:
        """Counts in a sequence that starts to grow (1), or leaves out one that ends (-1)."""
        self.takers[(1 - offset) % self.page_tokens] += change


def open_pages(kv_pages: int | None, page_tokens: int) -> Pages:
    """An empty cache."""
    return Pages(
        num_pages=inf if kv_pages is None else kv_pages,
        page_tokens=page_tokens,
        used=[0],
        takers=[0] * page_tokens,
    )
