"""The checks of the fused operators and of the kernels for GPUs, for `permcode doctor`."""

from cluster.doctor import Check

_NAME = "attention"


def attention_check(build: bool) -> Check:
    """Check the kernels of this machine's GPUs, or the operators of its CPUs.

    `build` compiles the operators now (about a minute) if they are not. The kernels are compiled as they are used.
    """
    import torch

    if torch.cuda.is_available():
        from pretrain.model.fused.gpu.choice import why_no_kernels

        reasons = {why_no_kernels(torch.device("cuda", index)) for index in range(torch.cuda.device_count())}
        if problems := sorted(reasons - {""}):
            finding = (
                f"runs in plain PyTorch on GPUs, which takes more time and memory ({'; '.join(problems)})"
            )
            fix = "install Triton: pip install -c constraints.txt triton" if "Triton" in finding else ""
            return Check(_NAME, "warning", finding, fix)
        return Check(_NAME, "ok", "kernels in Triton on GPUs, compiled when they are first used")
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
