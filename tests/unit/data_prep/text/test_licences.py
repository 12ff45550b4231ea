"""Licences are recognised in headers, in licence files and by the many names people use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.documents import Rejection
from data_prep.text.licence_phrases import ALIASES, HEADER_PHRASES, LICENCE_PHRASES, PERMISSIVE, PHRASE_HINTS
from data_prep.text.licences import (
    UNKNOWN_LICENCE,
    LicenceConfig,
    declared_licence,
    header_licence,
    is_licence_file,
    licence_of_file,
    licence_rejection,
    normalise_licence,
)

APACHE_HEADER = b"""/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 */
"""
GPL_HEADER = b"""# This program is free software; you can redistribute it and/or modify it under the terms of the
# GNU General Public License as published by the Free Software Foundation; either
# version 2 of the License, or (at your option) any later version.
"""
LGPL_HEADER = GPL_HEADER.replace(b"General", b"Lesser General").replace(b"version 2 ", b"version 2.1 ")
MIT_TEXT = b"""Permission is hereby granted, free of charge, to any person
obtaining a copy of this software ... The above copyright notice and this permission notice shall be included"""
BSD_TEXT = b"""Redistribution and use in source and binary forms, with or without modification, are permitted
1. Redistributions of source code must retain the above
2. Redistributions in binary form must reproduce the above"""


@pytest.mark.parametrize(
    ("data", "licence"),
    [
        (b"// SPDX-License-Identifier: MIT\n", "MIT"),
        (
            b"/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */\n",
            "GPL-2.0-only WITH Linux-syscall-note",
        ),
        (b"<!-- SPDX-License-Identifier: (Apache-2.0 OR MIT) -->\n", "Apache-2.0 OR MIT"),
        (b"/**\n * @license MIT\n */\n", "MIT"),
        (APACHE_HEADER, "Apache-2.0"),
        (GPL_HEADER, "GPL-2.0-or-later"),
        (LGPL_HEADER, "LGPL-2.1-or-later"),
        (b"\n".join(b" * " + line for line in MIT_TEXT.splitlines()), "MIT"),
        (BSD_TEXT, "BSD-2-Clause"),
        (
            BSD_TEXT + b"\nnor the names may be used to endorse or promote products derived from",
            "BSD-3-Clause",
        ),
        (
            b"// Use of this source code is governed by a BSD-style license that can be\n"
            b"// found in the LICENSE file.\n",
            "BSD-3-Clause",
        ),
        (
            b"// This Source Code Form is subject to the terms of the Mozilla Public\n// License, v. 2.0.\n",
            "MPL-2.0",
        ),
        (b"# SPDX-License-Identifier: LicenseRef-Secret\n", UNKNOWN_LICENCE),
        (b"# SPDX-License-Identifier: LicenseRef-Qt-Commercial\n" + LGPL_HEADER, "LGPL-2.1-or-later"),
        (b"# SPDX-License-Identifier: NOASSERTION\n", None),
        (b"# SPDX-License-Identifier: ${licence}\n", None),
        (b"/**\n * @license React v17\n */\n", None),
        (b"license = None\n", None),
        (b"print('hello')\n" * 1000 + b"# SPDX-License-Identifier: MIT\n", None),
    ],
)
def test_headers(data: bytes, licence: str | None) -> None:
    assert header_licence(data) == licence


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("LICENSE", True),
        ("licence.md", True),
        ("a/b/COPYING.LIB", True),
        ("LICENSE-MIT", True),
        ("MIT-LICENSE.txt", True),
        ("UNLICENSE", True),
        ("NOTICE", True),
        ("license.py", False),
        ("mylicense", False),
        ("notices/a.py", False),
    ],
)
def test_names_of_licence_files(name: str, is_one: bool) -> None:
    assert is_licence_file(name) is is_one


@pytest.mark.parametrize(
    ("data", "licence"),
    [
        (b"MIT License\n\nCopyright\n\n" + MIT_TEXT, "MIT"),
        (b"  Apache License\n   Version 2.0, January 2004\n", "Apache-2.0"),
        (
            b"GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n ... GNU Lesser General Public License instead",
            "GPL-3.0-only",
        ),
        (
            b"GNU LESSER GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n ... GNU General Public License",
            "LGPL-3.0-only",
        ),
        # The licence of the project comes first, those of what it bundles after it.
        (BSD_TEXT + b"\n\nBundled: GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007", "BSD-2-Clause"),
        (b"All rights reserved.\n", UNKNOWN_LICENCE),
        (b"SPDX-License-Identifier: LicenseRef-Ours\n", UNKNOWN_LICENCE),
        (b"../LICENSE", None),
        (b".. include:: ../LICENSE\n", None),
        (b" \n", None),
    ],
)
def test_licence_files(data: bytes, licence: str | None) -> None:
    assert licence_of_file("sub/LICENSE.txt", data) == licence
    assert licence_of_file("sub/main.c", data) is None


@pytest.mark.parametrize("name", ["NOTICE", "COPYRIGHT", "LICENSE-3rd-party.txt", "licenses.md"])
def test_notices_need_not_name_the_licence(name: str) -> None:
    assert licence_of_file(name, b"This product holds work of others.\n") is None
    assert licence_of_file(name, MIT_TEXT) == "MIT"


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        (None, None),
        ("", None),
        ("UNKNOWN", None),
        ("NOASSERTION", None),
        ("Proprietary", UNKNOWN_LICENCE),
        ("other", UNKNOWN_LICENCE),
        ("mit", "MIT"),
    ],
)
def test_declared_licences(name: str | None, licence: str | None) -> None:
    assert declared_licence(name) == licence


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("MIT License", "MIT"),
        ("the MIT licence", "MIT"),
        ("The MIT License (MIT)", "MIT"),
        ("mit", "MIT"),
        ("License :: OSI Approved :: BSD License", "BSD-3-Clause"),
        ("License :: OSI Approved :: GNU General Public License v3 or later (GPLv3+)", "GPL-3.0-or-later"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache Software License", "Apache-2.0"),
        ("GPL v2 or later", "GPL-2.0-or-later"),
        ("GPLv2", "GPL-2.0-only"),
        ("LGPL-3.0", "LGPL-3.0-only"),
        ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
        ("MIT License and Apache 2.0", "MIT AND Apache-2.0"),
        ("(MIT OR GPL-3.0-only) AND BSD-2-Clause", "(MIT OR GPL-3.0-only) AND BSD-2-Clause"),
        ("GPL-2.0-or-later WITH Classpath-exception-2.0", "GPL-2.0-or-later WITH Classpath-exception-2.0"),
        ("Other/Proprietary License", None),
        ("MIT, Proprietary", None),
        ("Dual License", None),
        ("", None),
        ("(((", None),
        (")", None),
        ("MIT OR", None),
        ("WITH", None),
    ],
)
def test_names_become_spdx(name: str, licence: str | None) -> None:
    assert normalise_licence(name) == licence


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["MIT", "OR", "AND", "WITH", "(", ")", "x", "/"])).map(" ".join)
)
@settings(max_examples=100)
def test_normalising_is_idempotent(name: str) -> None:
    once = normalise_licence(name)
    assert once is None or normalise_licence(once) == once


def test_the_tables_contain_spdx_identifiers_only() -> None:
    names = {*ALIASES.values(), *PERMISSIVE, *(name for name, _ in (*HEADER_PHRASES, *LICENCE_PHRASES))}
    assert {name for name in names if normalise_licence(name) not in (name, "Python-2.0.1")} == set()


def test_every_header_phrase_contains_a_hint() -> None:
    hints = [hint.lower() for hint in PHRASE_HINTS]
    for _, phrases in HEADER_PHRASES:
        assert any(hint in phrase for hint in hints for phrase in phrases), phrases


@pytest.mark.parametrize(
    ("licence", "is_kept"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND BSD-2-Clause", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        (None, True),
        ("no licence we know", True),
    ],
)
def test_permissive_and_unknown_licences_are_kept_by_default(licence: str | None, is_kept: bool) -> None:
    found = licence_rejection(licence, LicenceConfig())
    assert found is None if is_kept else found == Rejection("licence", None, licence)


def test_unknown_can_be_dropped_and_others_allowed() -> None:
    config = LicenceConfig(allow=("GPL-3.0", "MIT"), unknown="drop")
    assert licence_rejection(None, config) == Rejection("licence", None, "unknown")
    assert licence_rejection("GPL-3.0-only", config) is None
    assert licence_rejection("Apache-2.0", config) == Rejection("licence", None, "Apache-2.0")
