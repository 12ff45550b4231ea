"""Random Python functions that end, for transforms to be run on."""

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d")
_atom = st.one_of(
    st.sampled_from(NAMES), st.integers(0, 5).map(str), st.sampled_from(["len(str(a))", "helper(b)"])
)
_expression = st.one_of(
    _atom,
    st.tuples(_atom, st.sampled_from(["+", "-", "*"]), _atom).map(" ".join),
    _atom.map(lambda one: f"sum([{one} for a in range(3)])"),
    _atom.map(lambda one: f"(lambda c: c + {one})(2)"),
    st.tuples(_atom, _atom).map(lambda two: f"len(f'{{{two[0]}}} {{{two[1]}:>{{5}}}}')"),
)
_condition = st.tuples(_expression, st.sampled_from(["<", "==", ">"]), _expression).map(" ".join)


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _if_else(parts: tuple[str, list[str], list[str]]) -> list[str]:
    return [f"if {parts[0]}:", *_indented(parts[1]), "else:", *_indented(parts[2])]


def _loop(parts: tuple[str, str, list[str], str]) -> list[str]:
    name, values, body, end = parts
    return [f"for {name} in {values}:", *_indented(body), *_indented([f"if {name} == 2: {end}"])]


def _inner(parts: tuple[str, str]) -> list[str]:
    return [
        "def helper(b, d=a):",
        "    nonlocal c",
        f"    c = {parts[0]}",
        "    return b + c",
        f"c = {parts[1]}",
    ]


_simple = st.one_of(
    st.tuples(st.sampled_from(NAMES), _expression).map(lambda two: [f"{two[0]} = {two[1]}"]),
    st.tuples(st.sampled_from(NAMES), _atom).map(lambda two: [f"{two[0]} += {two[1]}"]),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).map(lambda two: [f"{two[0]} = {two[1]}"]),
    st.tuples(_atom, _atom).map(lambda two: [f"d = {two[0]}", f"b = {two[1]}", "a = 4", "c = b"]),
    _expression.map(lambda one: [f"seen.append({one})  # told"]),
    st.tuples(_expression, _expression).map(lambda two: [f"a, b = {two[0]}, {two[1]}"]),
    st.tuples(_expression, _expression).map(_inner),
)


def _more(blocks: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    several = st.lists(blocks, min_size=1, max_size=3).map(
        lambda many: [line for one in many for line in one]
    )
    values = st.sampled_from(["range(4)", "1, 2, 3", "[0, 2]", "(a, b)"])
    return st.one_of(
        several,
        st.tuples(_condition, several, several).map(_if_else),
        st.tuples(
            st.sampled_from(NAMES), values, several, st.sampled_from(["break", "continue", "return 7"])
        ).map(_loop),
    )


_body = st.lists(st.recursive(_simple, _more, max_leaves=8), min_size=2, max_size=6)


def _function(body: list[list[str]]) -> str:
    lines = [line for block in body for line in block]
    head = ["def run(a, b=3, *rest):", '    """What is run."""', "    c = d = 1", "    seen = []",
            "    def helper(b): return b + c"]  # fmt: skip
    return "\n".join([*head, *_indented(lines), "    return [a, b, c, d, rest, seen]"]) + "\n"


functions = _body.map(_function)
