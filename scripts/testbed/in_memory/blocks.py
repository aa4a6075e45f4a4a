"""Where topology/block places a job: ``eval_nodes_block.c`` of 26.05, for nodes of one weight."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocks:
    """Base blocks, and the configured sizes in nodes, the first of which is that of a base block;
    the others are it times powers of two."""

    base: Sequence[frozenset[str]] = ()
    sizes: Sequence[int] = (1,)

    def choose(
        self,
        available: Collection[str],
        nodes: int,
        segment: int = 0,
        required: Collection[str] = (),
    ) -> frozenset[str] | None:
        """Return the nodes for a job of so many nodes, all of the size of its request; None if it
        does not fit."""
        size = segment if 0 < segment <= nodes else nodes
        if nodes % size or not set(required) <= set(available):
            return None
        count = nodes // size
        left, chosen = set(available), set[str]()
        if required and count > 1:
            if len(required) < nodes:
                return None
            left = set(required)
        for _ in range(count):
            found = self._segment(left, size, required if count == 1 else ())
            if found is None:
                return None
            chosen |= found
            left -= found
        return frozenset(chosen)

    def _segment(
        self, available: Collection[str], size: int, required: Collection[str]
    ) -> set[str] | None:
        base = self.sizes[0]
        level = math.ceil(math.log2(math.ceil(size / base)))
        levels = [int(math.log2(one // base)) for one in self.sizes]
        lower = max(one for one in levels if one <= max(level - 1, 0))
        larger = [one for one in levels if one >= level]
        per_block = 2 ** min(larger) if larger else len(self.base)
        most = math.ceil(size / (base * 2**lower))
        best: set[str] | None = None
        for first in range(0, len(self.base), per_block):
            block = self.base[first : first + per_block]
            lower_blocks = [
                set().union(*block[at : at + 2**lower]) & set(available)
                for at in range(0, len(block), 2**lower)
            ]
            here = set().union(*lower_blocks)
            enough = sum(sorted((len(one) for one in lower_blocks), reverse=True)[:most]) >= size
            if required:
                enough = not set().union(*block).isdisjoint(required)
            if enough and (best is None or len(here) <= len(best) or required):
                best, best_lower = here, lower_blocks
                if required:
                    break
        if best is None or not set(required) <= best:
            return None
        return self._filled(best_lower, size, most, set(required))

    @staticmethod
    def _filled(
        lower: Sequence[set[str]], size: int, most: int, required: set[str]
    ) -> set[str] | None:
        chosen = set(required)
        used = [one for one in lower if one & required]
        if len(used) > most:
            return None
        for one in used:
            chosen |= set(sorted(one - chosen)[: size - len(chosen)])
        rest = [one for one in lower if one not in used]
        while len(chosen) < size and len(used) < most and rest:
            fit = [one for one in rest if len(one) >= size - len(chosen)]
            one = min(fit, key=len) if fit else max(rest, key=len)
            rest.remove(one)
            used.append(one)
            chosen |= set(sorted(one)[: size - len(chosen)])
        return chosen if len(chosen) >= size else None
