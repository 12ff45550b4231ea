"""Transformed Java is compiled and run beside the original."""

import shutil
import subprocess
from pathlib import Path

import pytest

from finetune.transforms.kinds import TRANSFORMS, transform

METHODS = [
    """int run(int n, int m) {
    int total = 0; for (int i = 0; i < n; i++) { if (i % 2 == 0) total += i; else total -= m; }
    return total; }""",
    """int run(int n, int m) {
    int a = 3; int b = n * 2; int c = m; boolean d = n < m;
    if (d) { int e = a; a = b; b = e; } else if (n == m) a = 9; else { b = 7; } return a * 100 + b * 10 + c; }""",
    """int run(int n, int m) {
    int i, j; for (i = 0, j = 10; i < j; i += 2, j--) { if (i == n) break; } return i * j; }""",
    """int run(int n, int m) {
    int total = 0; for (int i = 0; i < 5; i++) for (int j = i; j < 5; j++) total += i * j + n;
    return total; }""",
    """int run(int n, int m) {
    int total = 0; for (int i = 0; i < 9; i++) { if (i == n) continue; total += i; }
    return total; }""",
    """int run(int n, int m) {
    for (int i = 0; ; i++) { if (i * i > n + m + 9) { return i; } } }""",
    """int run(int n, int m) {
    int x = field; { int field = n; x += field; } field = m; field += x; return field; }""",
    """int run(int n, int m) {
    java.util.function.IntUnaryOperator f = k -> { int w = k; int v = n; return w + v; };
    return f.applyAsInt(m); }""",
    """int run(int n, int m) {
    try { return n / m; } catch (ArithmeticException e) { String s = e.getMessage();
    return s.length(); } finally { field++; } }""",
    """int run(int n, int m) {
    outer: for (int i = 0; i < 4; i++) { for (int j = 0; j < 4; j++) { if (i * j > n) break outer;
    field += j; } } return field; }""",
    """int run(int n, int m) {
    switch (n) { case 1: { int a = m; return a; } default: int b = 5; if (m > 2) return b;
    else return b + 1; } }""",
    """int run(int n, int m) {
    final int field; if (n > m) field = 1; else field = 2; this.field = field; return field; }""",
]
_MAIN = """public class Main { public static void main(String[] given) {
    for (int n = -1; n < 5; n++) { for (int m = -1; m < 5; m++) { System.out.println(%s); } } } }
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler on this machine")
def test_methods_compile_and_give_the_same(tmp_path: Path) -> None:
    versions: list[list[str]] = []
    for code in METHODS:
        changed = [transform(kind, code, "java", seed) for kind in TRANSFORMS for seed in range(3)]
        every = code
        for kind in TRANSFORMS:
            every = transform(kind, every, "java", 1) or every
        versions.append([code, *{version for version in (*changed, every) if version is not None}])
    assert sum(map(len, versions)) > 70
    lines = []
    source = ""
    for number, codes in enumerate(versions):
        for version, code in enumerate(codes):
            source += f"class C{number}_{version} {{ int field = 1; {code} }}\n"
        calls = [f"new C{number}_{version}().run(n, m)" for version in range(len(codes))]
        lines.append('"" + ' + ' + " " + '.join(calls))
    (tmp_path / "Main.java").write_text(source + _MAIN % ' + "\\n" + '.join(lines))
    subprocess.run(["javac", "-J-XX:TieredStopAtLevel=1", "Main.java"], cwd=tmp_path, check=True, timeout=120)
    reported = subprocess.run(["java", "-Xshare:auto", "-cp", ".", "Main"], cwd=tmp_path, check=True, timeout=60,
                          capture_output=True, text=True).stdout  # fmt: skip
    results = reported.strip().split("\n")
    assert len(results) == 36 * len(METHODS)
    for line in results:
        assert len(set(line.split(" "))) == 1
