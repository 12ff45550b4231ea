"""Data flow of programs, for CodeBLEU (Ren et al. 2020, section 3.3; Guo et al. 2021).

An item is one occurrence of a name with the names that its value comes from. Names are replaced by numbers in order of
appearance, so two programs that differ only in names have equal items. The rules are GraphCodeBERT's: a use comes from
the last places where the name was set (after a branch, those of all its parts; a loop's body is traversed twice, so
that its end reaches its start), and a set name is computed from all names and literals on the other side.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from finetune.metrics.dataflow_grammars import GRAMMARS, Grammar, Setting
from finetune.metrics.syntax import children

FlowItem = tuple[int, str, tuple[int, ...]]
"""The name's number, "comesFrom" or "computedFrom", and the numbers of the names that it comes from."""

_MAX_DEPTH = 150
"""For nodes that are nested deeper, only the names are used; twice this many calls are within Python's limit."""

_SetAt = dict[str, tuple[int, ...]]
"""The byte positions at which each name was last set."""


@dataclass
class _Occurrence:
    name: str
    relation: str
    source_of: dict[int, str] = field(default_factory=dict)
    """The names that its value comes from, by byte position."""


def flow_items(root: Node, language: str) -> Counter[FlowItem]:
    """Return the items of a program with their counts; occurrences without any flow are left out."""
    flow = _Flow(GRAMMARS[language])
    flow.follow(root, {}, depth=0)
    used = {position for one in flow.occurrences.values() for position in one.source_of}
    number_of: dict[str, int] = {}
    items: Counter[FlowItem] = Counter()
    for position, one in sorted(flow.occurrences.items()):
        if not one.source_of and position not in used:
            continue
        sources = dict.fromkeys(name for _, name in sorted(one.source_of.items()))
        numbers = tuple(number_of.setdefault(name, len(number_of)) for name in sources)
        items[number_of.setdefault(one.name, len(number_of)), one.relation, numbers] += 1
    return items


class _Flow:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.occurrences: dict[int, _Occurrence] = {}

    def follow(self, node: Node, set_at: _SetAt, depth: int) -> None:
        """Record the occurrences in `node`, and update `set_at` to its state after the node."""
        if depth > _MAX_DEPTH or self._grammar.is_leaf(node):
            for leaf in self._leaves(node):
                self._use(leaf, set_at)
        elif node.type in self._grammar.settings:
            self._set(node, self._grammar.settings[node.type], set_at, depth)
        elif node.type in self._grammar.updates:
            leaves = self._leaves(node)
            self._note(leaves, "computedFrom", leaves, set_at)
        elif node.type in self._grammar.branches:
            self._branch(node, set_at, depth)
        elif node.type in self._grammar.loops:
            self._follow_all(node, set_at, depth, without=())
            self._follow_all(node, set_at, depth, without=("init", "initializer"))
        else:
            self._follow_all(node, set_at, depth, without=())

    def _follow_all(self, node: Node, set_at: _SetAt, depth: int, without: Sequence[str]) -> None:
        parts = [(name, child) for name, child in children(node) if name not in without]
        # In a comprehension, the loop comes after the expression that uses its names.
        parts.sort(key=lambda part: part[1].type not in self._grammar.followed_first)
        for _, child in parts:
            self.follow(child, set_at, depth + 1)

    def _use(self, leaf: Node, set_at: _SetAt) -> None:
        name = _text(leaf)
        occurrence = self.occurrences.setdefault(leaf.start_byte, _Occurrence(name, "comesFrom"))
        if name in set_at:
            occurrence.source_of |= dict.fromkeys(set_at[name], name)
        elif leaf.type in self._grammar.names:
            set_at[name] = (leaf.start_byte,)

    def _set(self, node: Node, setting: Setting, set_at: _SetAt, depth: int) -> None:
        """Record `left = right`; if it is the head of a loop, also follow the loop's body, and do both twice."""
        left, right = setting.sides(node)
        body = node.child_by_field_name(setting.body) if setting.body else None
        for _ in range(2 if body is not None else 1):
            if right is not None:
                self.follow(right, set_at, depth + 1)
            if left is not None:
                for one, other in self._pairs(left, right):
                    sources = [] if other is None else self._leaves(other)
                    self._note(self._leaves(one), setting.relation, sources, set_at)
            if body is not None:
                self.follow(body, set_at, depth + 1)

    def _pairs(self, left: Node, right: Node | None) -> list[tuple[Node, Node | None]]:
        """Return the pairs of what is set and what it is set to: `a, b = c, d` sets a from c and b from d."""
        if right is None:
            return [(left, None)]
        ones, others = left.named_children, right.named_children
        lists = self._grammar.lists
        if left.type in lists and right.type in lists and len(ones) == len(others):
            return list(zip(ones, others, strict=True))
        return [(left, right)]

    def _note(self, leaves: Sequence[Node], relation: str, sources: Sequence[Node], set_at: _SetAt) -> None:
        source_of = {source.start_byte: _text(source) for source in sources}
        for leaf in leaves:
            name = _text(leaf)
            occurrence = self.occurrences.setdefault(leaf.start_byte, _Occurrence(name, relation))
            occurrence.source_of |= source_of
            set_at[name] = (leaf.start_byte,)

    def _branch(self, node: Node, set_at: _SetAt, depth: int) -> None:
        """Follow the condition, then every part; after the branch, a name may have been set in any of them."""
        parts = list(children(node))
        alternatives = [child for name, child in parts if name == "alternative"]
        before: _SetAt | None = None
        for name, child in parts:
            if name in ("consequence", "body") and before is None:
                before = dict(set_at)
            if name != "alternative":
                self.follow(child, set_at, depth + 1)
        before = dict(set_at) if before is None else before
        ends = [set_at, *([] if alternatives else [before])]
        for alternative in alternatives:
            end = dict(before)
            self.follow(alternative, end, depth + 1)
            ends.append(end)
        merged = {
            name: {place for end in ends for place in end.get(name, ())} for end in ends for name in end
        }
        set_at.update({name: tuple(sorted(places)) for name, places in merged.items()})

    def _leaves(self, node: Node) -> list[Node]:
        """Return the names and literals of a node in their order; iterative, because nodes may be nested deeply."""
        leaves: list[Node] = []
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if self._grammar.is_leaf(one):
                if one.is_named:
                    leaves.append(one)
            else:
                waiting.extend(reversed([child for _, child in children(one)]))
        return leaves


def _text(leaf: Node) -> str:
    return (leaf.text or b"").decode("utf-8", errors="replace")
