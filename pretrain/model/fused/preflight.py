"""The check of the fused attention for `permcode doctor`."""

from cluster.doctor import Check

_NAME = "attention"


def attention_check(build: bool) -> Check:
    """Check whether the operators are compiled; `build` compiles them now (about a minute) if they are not."""
    from pretrain.model.fused.operators import library_path, load_operators

    library = library_path()
    if not library.is_file() and not build:
        return Check(
            _NAME,
            "warning",
            "not compiled yet; the first training on CPUs does it (about a minute)",
            "permcode doctor --build",
        )
    reason = load_operators()
    if reason is not None:
        finding = f"runs in plain PyTorch, which takes longer ({reason})"
        return Check(_NAME, "warning", finding, "install a C++ compiler (g++) and run this again")
    return Check(_NAME, "ok", f"compiled in {library.parent}")
