"""Files get the language that GitHub assigns."""

import inspect
import re
import time
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.lexers import get_all_lexers

from data_prep.text import language_content
from data_prep.text.language_content import BY_CHOICE
from data_prep.text.language_names import BY_EXTENSION, BY_FILE_NAME
from data_prep.text.languages import all_languages, detect_language, rare_language


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("src/a.py", "Python"),
        ("SRC/A.PY", "Python"),
        ("a.pyi", "Python"),
        ("a.tar.js", "JavaScript"),
        ("README", "Text"),
        ("readme.md", "Markdown"),
        ("Dockerfile.dev", "Dockerfile"),
        ("CMakeLists.txt", "CMake"),
        ("config.h.in", "C"),
        ("nb.ipynb", "Jupyter Notebook"),
        ("a.cs", "C#"),
        ("lib/x.blade.php", "Blade"),
        ("go.mod", "Go Module"),
        (".gitignore", "Ignore List"),
        ("a.tsx", "TSX"),
        ("a.unheard-of", None),
        ("", None),
        ("folder.py/", None),
    ],
)
def test_languages_by_name(path: str, language: str | None) -> None:
    assert detect_language(path, b"") == language


@pytest.mark.parametrize(
    ("path", "data", "language"),
    [
        ("a.h", b'#ifndef A_H\n#ifdef __cplusplus\nextern "C" {\n#endif\nint f(int class_);\n', "C"),
        ("a.h", b"// std::vector in a comment\nstruct a { int b; };\n", "C"),
        ("a.h", b"#pragma once\nnamespace a {\nclass B;\n}\n", "C++"),
        ("a.h", b"#include <vector>\nint f();\n", "C++"),
        ("a.h", b"template <typename T>\nT f(T x);\n", "C++"),
        ("a.h", b"#import <Foundation/Foundation.h>\n@interface A : NSObject\n@end\n", "Objective-C"),
        ("a.m", b"@implementation A\n@end\n", "Objective-C"),
        ("a.m", b"function y = f(x)\n% doubles\ny = 2 * x;\nend\n", "MATLAB"),
        ("a.m", b"(* a comment *)\nf[x_] := x^2\n", "Mathematica"),
        ("a.pl", b"use strict;\nmy $x = 1;\n", "Perl"),
        ("a.pl", b":- module(a, [b/1]).\nb(X) :- c(X).\n", "Prolog"),
        ("a.ts", b"export const a: number = 1;\n", "TypeScript"),
        ("a.ts", b'<?xml version="1.0"?>\n<!DOCTYPE TS>\n<TS>\n', "XML"),
        ("a.v", b"module a(input b);\n  assign c = b;\nendmodule\n", "Verilog"),
        ("a.v", b"Require Import List.\nTheorem a : True.\nProof. auto. Qed.\n", "Coq"),
        ("a.v", b"module main\n\nfn main() {\n\tprintln('x')\n}\n", "V"),
        ("a.fs", b"module A\nlet x = 1\n", "F#"),
        ("a.fs", b"#version 330\nvoid main() {}\n", "GLSL"),
        ("a.r", b"x <- 1\n", "R"),
        ("a.inc", b"<?php echo 1;", "PHP"),
        ("git.1", b".TH GIT 1\n.SH NAME\n", "Roff Manpage"),
        ("data.1", b"1 2 3\n", None),
        ("configure", b"#! /bin/sh\n# Guess values\n", "Shell"),
        ("run", b"#!/usr/bin/env python3.11\nprint()\n", "Python"),
        ("run", b"#!/usr/bin/env -S deno run --allow-net\n", "TypeScript"),
        ("run", b"#!/usr/bin/env FOO=1 node\n", "JavaScript"),
        ("run", b"#!/opt/strange/interpreter\n", None),
        ("run", b"#!", None),
        ("run", b"# vim: set ft=ruby :\nputs 1\n", "Ruby"),
        ("run", b";; -*- mode: scheme; coding: utf-8 -*-\n", "Scheme"),
        ("page", b"<!DOCTYPE html>\n<html>", "HTML"),
        ("feed", b"<?xml version='1.0'?><rss/>", "XML"),
        ("picture", b"<svg xmlns='http://www.w3.org/2000/svg'>", "SVG"),
        ("notes", b"Dear diary\n", "Text"),
        ("diary", b"Dear diary\n", None),
    ],
)
def test_content_decides_where_names_are_ambiguous(path: str, data: bytes, language: str | None) -> None:
    assert detect_language(path, data) == language


# Pygments' name for the extension, where it is not GitHub's for the same thing.
_RENAMED = """
GAS=Assembly NASM=Assembly ClojureScript=Clojure COBOLFree=COBOL Docker=Dockerfile EmacsLisp=Emacs_Lisp FStar=F*
FortranFixed=Fortran Groovy=Gradle Graphviz=Graphviz_(DOT) Terraform=HCL HTML+Handlebars=Handlebars
Literate_Haskell=Haskell Desktop_file=INI Systemd=INI JSON-LD=JSONLD Properties=Java_Properties
Java_Server_Page=Java_Server_Pages JSX=JavaScript LessCss=Less Nimrod=Nim Org_Mode=Org HTML+PHP=PHP
POVRay=POV-Ray_SDL Delphi=Pascal Pig=PigLatin RPMSpec=RPM_Spec Perl6=Raku Groff=Roff_Manpage XML=SVG Bash=Shell
Python=Starlark Text_only=Text HTML+Twig=Twig Velocity=Velocity_Template_Language VimL=Vim_Script
VB.net=Visual_Basic_.NET WebGPU_Shading_Language=WGSL Web_IDL=WebIDL reg=Windows_Registry_Entries DTD=XML
Coldfusion_HTML=ColdFusion aspx-cs=ASP.NET CUDA=Cuda
"""
# Extensions that GitHub gives to another language than Pygments does.
_OURS = {"bb", "ino", "ph", "sc", "sls", "xmi"}


def test_extensions_mean_what_they_mean_in_pygments() -> None:
    renamed = {tuple(pair.replace("_", " ").lower().split("=")) for pair in _RENAMED.split()}
    theirs = defaultdict(set)
    for name, _, patterns, _ in get_all_lexers(plugins=False):
        for pattern in patterns:
            if pattern.startswith("*."):
                theirs[pattern[2:]].add(name.lower())
    both = [extension for extension in theirs if extension in BY_EXTENSION and extension not in _OURS]
    assert len(both) > 250
    for extension in both:
        ours = BY_EXTENSION[extension].lower()
        assert ours in theirs[extension] or any((name, ours) in renamed for name in theirs[extension]), (
            extension
        )


def test_there_are_many_languages_and_the_tables_are_in_lower_case() -> None:
    assert len(set(BY_EXTENSION.values())) > 200
    for name in (*BY_EXTENSION, *BY_FILE_NAME, *BY_CHOICE):
        assert name == name.lower()


@given(st.sampled_from(sorted(BY_CHOICE)), st.binary(max_size=200))
@settings(max_examples=100)
def test_any_content_is_examined_without_error(extension: str, data: bytes) -> None:
    for name in (f"a.{extension}", "a"):
        assert detect_language(name, data) in {*all_languages(), None}


def test_all_languages_includes_those_by_name_and_by_content() -> None:
    by_content = {name for name in re.findall(r'"([A-Z][\w#+ -]*)"', inspect.getsource(language_content))}
    assert {"Objective-C", "VBA", "Java Server Pages", "Coq"} < by_content
    assert by_content - {"VERSION"} <= all_languages()
    assert {*BY_EXTENSION.values(), *BY_FILE_NAME.values()} <= all_languages()
    assert "PromQL" in all_languages()


@pytest.mark.parametrize(
    "piece", [b"\n", b" ", b"class ", b"/*", b"#!", b"<", b"a::", b".\n", b"f(", b"'\\\"", b"if "]
)
def test_adversarial_content_takes_little_time(piece: bytes) -> None:
    start = time.process_time()
    for extension in (*BY_CHOICE, "nothing"):
        detect_language(f"a.{extension}", piece * 100_000)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/solver.ampl.mos", "Mosel"),
        ("robot.mq5", "MQL"),
        ("site.typoscript", "TypoScript"),
        ("query.promql", "PromQL"),
        ("tests.rakutest", "Raku"),
        ("ls.1p", "Roff Manpage"),
        ("grammar.g", None),  # eight lexers claim it
        ("crash.pytb", None),  # no code
        ("key.asc", None),
        ("x.nosuchextension", None),
    ],
)
def test_rare_languages_by_extension(path: str, language: str | None) -> None:
    assert detect_language(path, b"") == language


def test_our_own_tables_take_precedence() -> None:
    assert all(
        detect_language(f"x.{extension}", b"") == BY_EXTENSION[extension] for extension in ("py", "rs", "go")
    )
    assert rare_language("py") == "Python"
