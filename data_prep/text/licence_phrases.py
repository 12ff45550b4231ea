"""Phrases by which licences are recognised, and the names in use for them."""

PERMISSIVE = (
    *("0BSD", "AFL-3.0", "Apache-1.1", "Apache-2.0", "Artistic-2.0", "BlueOak-1.0.0", "BSD-1-Clause"),
    *("BSD-2-Clause", "BSD-2-Clause-Patent", "BSD-3-Clause", "BSD-3-Clause-Clear", "BSD-4-Clause", "BSL-1.0"),
    *("CC-BY-3.0", "CC-BY-4.0", "CC0-1.0", "curl", "ECL-2.0", "FTL", "HPND", "ICU", "ISC", "JSON", "Libpng"),
    *("MIT", "MIT-0", "MIT-CMU", "MS-PL", "MulanPSL-2.0", "NCSA", "OFL-1.1", "OpenSSL", "PHP-3.01"),
    *("PostgreSQL", "PSF-2.0", "Python-2.0", "Ruby", "TCL", "Unicode-3.0", "Unicode-DFS-2016", "Unlicense"),
    *("UPL-1.0", "Vim", "W3C", "WTFPL", "X11", "Xnet", "Zlib", "ZPL-2.1"),
)

# Every header that names a licence contains one of these.
PHRASE_HINTS = (
    b"icense",
    b"ICENSE",
    b"icence",
    b"Permission",
    b"Redistribution",
    b"ublic domain",
    b"Public Domain",
    b"ltered source",
)

# In lower case, with single spaces, without comment signs and hyphens; all phrases must occur in the text. More
# specific ones come first: LGPL before GPL, three clauses before two.
_AGPL = b"gnu affero general public license"
_LGPL = b"lesser general public license"
_LIBRARY_GPL = b"library general public license"
_GPL = b"gnu general public license"
_LATER = b"any later version"
_MIT_GRANT = b"permission is hereby granted, free of charge, to any person obtaining a copy"
_BSD_GRANT = b"redistribution and use in source and binary forms"
_BSD_COPIES = b"redistributions of source code must retain"
_BSD_BINARY = b"redistributions in binary form must reproduce"
_BSD_NO_NAMES = b"endorse or promote products derived from"
_BSD_ADVERTISING = b"all advertising materials mentioning features"

_SHARED: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("BSD-4-Clause", (_BSD_GRANT, _BSD_ADVERTISING)),
    ("BSD-3-Clause", (_BSD_GRANT, _BSD_BINARY, _BSD_NO_NAMES)),
    ("BSD-2-Clause", (_BSD_GRANT, _BSD_BINARY)),
    ("BSD-1-Clause", (_BSD_GRANT, _BSD_COPIES)),
    ("BSL-1.0", (b"boost software license", b"version 1.0")),
    ("NCSA", (_MIT_GRANT, b"to deal with the software without restriction")),
    ("X11", (_MIT_GRANT, b"except as contained in this notice")),
    ("MIT", (_MIT_GRANT, b"above copyright notice and this permission notice")),
    ("MIT-0", (_MIT_GRANT, b"the software is provided")),
    (
        "HPND",
        (
            b"permission to use, copy, modify, and distribute this software and its documentation for any purpose",
        ),
    ),
    ("HPND", (b"permission to use, copy, modify, distribute, and sell this software and its documentation",)),
    (
        "ISC",
        (
            b"permission to use, copy, modify, and or distribute this software for any purpose with or without fee",
            b"above copyright notice",
        ),
    ),
    (
        "ISC",
        (
            b"permission to use, copy, modify, and distribute this software for any purpose with or without fee",
            b"above copyright notice",
        ),
    ),
    (
        "0BSD",
        (
            b"permission to use, copy, modify, and or distribute this software for any purpose with or without fee",
        ),
    ),
    (
        "Zlib",
        (
            b"this software is provided as is , without any express or implied warranty",
            b"altered source versions must be plainly marked",
        ),
    ),
    ("Zlib", (b"without any express or implied warranty", b"altered source versions must be plainly marked")),
    ("BlueOak-1.0.0", (b"blue oak model license", b"1.0.0")),
    ("Unlicense", (b"this is free and unencumbered software released into the public domain",)),
    ("WTFPL", (b"do what the fuck you want to public license",)),
    ("MPL-2.0", (b"mozilla public license", b"2.0")),
    ("MPL-1.1", (b"mozilla public license version 1.1",)),
    ("MPL-1.1", (b"mozilla public license", b"version 1.1")),
    ("EPL-2.0", (b"eclipse public license", b"2.0")),
    ("EPL-1.0", (b"eclipse public license", b"1.0")),
    ("CDDL-1.0", (b"common development and distribution license",)),
    ("EUPL-1.2", (b"european union public licence", b"1.2")),
    ("OFL-1.1", (b"sil open font license",)),
    ("PSF-2.0", (b"python software foundation license",)),
    ("Artistic-2.0", (b"artistic license 2.0",)),
)

# Phrases of file headers, which name a licence in a sentence or two.
HEADER_PHRASES: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("AGPL-3.0-or-later", (_AGPL, _LATER)),
    ("AGPL-3.0-only", (_AGPL,)),
    ("LGPL-3.0-or-later", (_LGPL, b"version 3", _LATER)),
    ("LGPL-2.1-or-later", (_LGPL, b"version 2.1", _LATER)),
    ("LGPL-2.0-or-later", (_LGPL, b"version 2", _LATER)),
    ("LGPL-3.0-only", (_LGPL, b"version 3")),
    ("LGPL-2.1-only", (_LGPL, b"version 2.1")),
    ("LGPL-2.1-or-later", (_LGPL, _LATER)),
    ("LGPL-2.0-or-later", (_LIBRARY_GPL, _LATER)),
    ("LGPL-2.0-only", (_LIBRARY_GPL,)),
    ("LGPL-2.1-only", (_LGPL,)),
    ("GPL-3.0-or-later", (_GPL, b"version 3", _LATER)),
    ("GPL-2.0-or-later", (_GPL, b"version 2", _LATER)),
    ("GPL-3.0-only", (_GPL, b"version 3")),
    ("GPL-2.0-only", (_GPL, b"version 2")),
    ("GPL-1.0-or-later", (_GPL, _LATER)),
    ("Apache-2.0", (b"apache license, version 2.0",)),
    ("Apache-2.0", (b"apache license version 2.0",)),
    ("Apache-2.0", (b"apache.org licenses license 2.0",)),
    ("Apache-2.0", (b"apache 2.0 license",)),
    *_SHARED,
    ("MIT", (b"under the mit license",)),
    ("MIT", (b"mit style license",)),
    ("MIT", (b"mit licensed",)),
    ("MIT", (b"licensed under mit",)),
    ("MIT", (b"under the terms of the mit license",)),
    ("MIT", (b"opensource.org licenses mit",)),
    ("BSD-3-Clause", (b"bsd style license that can be found in the license file",)),
    ("BSD-3-Clause", (b"license: bsd 3 clause",)),
    ("BSD-3-Clause", (b"3 clause bsd license",)),
    ("BSD-2-Clause", (b"2 clause bsd license",)),
)

# Phrases of licence files, which contain the licence itself. The licences of the GNU project name each other further
# down, so each is recognised by its full title with the date.
LICENCE_PHRASES: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("AGPL-3.0-only", (b"gnu affero general public license version 3, 19 november 2007",)),
    ("LGPL-3.0-only", (b"gnu lesser general public license version 3, 29 june 2007",)),
    ("LGPL-2.1-only", (b"gnu lesser general public license version 2.1, february 1999",)),
    ("LGPL-2.0-only", (b"gnu library general public license version 2, june 1991",)),
    ("GPL-3.0-only", (b"gnu general public license version 3, 29 june 2007",)),
    ("GPL-2.0-only", (b"gnu general public license version 2, june 1991",)),
    ("GPL-1.0-only", (b"gnu general public license version 1, february 1989",)),
    ("Apache-2.0", (b"apache license version 2.0, january 2004",)),
    ("Apache-1.1", (b"apache software license, version 1.1",)),
    ("PSF-2.0", (b"psf license agreement", b"python software foundation")),
    ("PSF-2.0", (b"python software foundation license version 2",)),
    *_SHARED,
    ("CC0-1.0", (b"cc0 1.0 universal",)),
    ("CC-BY-NC-4.0", (b"attribution noncommercial 4.0 international",)),
    ("CC-BY-SA-4.0", (b"attribution sharealike 4.0 international",)),
    ("CC-BY-4.0", (b"attribution 4.0 international",)),
    ("Artistic-1.0-Perl", (b"the artistic license", b"standard version")),
    ("MIT", (b"mit license", b"permission is hereby granted")),
)

# In lower case, with single spaces for punctuation; a trailing "license" is removed before the look-up.
_NAMES = {
    "0BSD": "0bsd|zero clause bsd|bsd zero clause",
    "AFL-3.0": "academic free license v. 3.0|academic free 3.0|academic free license 3.0",
    "AGPL-3.0-only": "agpl|agpl3|agplv3|agpl 3|agpl 3.0|gnu affero general public license v3|gnu agplv3"
    "|gnu affero general public license 3.0|gnu affero general public license v3.0",
    "AGPL-3.0-or-later": "agplv3+|agpl 3.0+|gnu affero general public license v3 or later agplv3+",
    "Apache-1.1": "apache 1.1|apache software license 1.1",
    "Apache-2.0": "apache|apache 2|apache 2.0|apache2|apache2.0|apache v2|apache v2.0|apachev2|apache software"
    "|apache software license 2.0|apache license 2.0|apache license v2.0|apache license 2|asl 2.0|al 2.0"
    "|apache license version 2.0|apache license version 2|apache version 2.0|apache software 2.0",
    "Artistic-2.0": "artistic 2.0|artistic license 2.0",
    "Artistic-1.0-Perl": "artistic|perl artistic|artistic 1.0 perl",
    "Artistic-1.0-Perl OR GPL-1.0-or-later": "perl|perl 5|same as perl",
    "BSD-2-Clause": "bsd 2 clause|2 clause bsd|simplified bsd|freebsd|bsd 2|bsd2|2bsd",
    # "BSD" alone nearly always means the three-clause licence.
    "BSD-3-Clause": "bsd|bsd 3 clause|3 clause bsd|new bsd|modified bsd|revised bsd|bsd 3|bsd3|bsd new|bsd like"
    "|bsd style|bsd derived|bsd licence",
    "BSD-4-Clause": "bsd 4 clause|4 clause bsd|original bsd",
    "BSL-1.0": "boost|boost software|boost software license 1.0|boost software license 1.0 bsl 1.0|boost 1.0",
    "CC-BY-4.0": "cc by 4.0|creative commons attribution 4.0|creative commons attribution 4.0 international",
    "CC-BY-SA-4.0": "cc by sa 4.0|creative commons attribution share alike 4.0 international",
    "CC0-1.0": "cc0|cc0 1.0|cc0 1.0 universal|cc0 1.0 universal cc0 1.0 public domain dedication"
    "|creative commons zero v1.0 universal",
    "CDDL-1.0": "cddl|cddl 1.0|common development and distribution license 1.0 cddl 1.0",
    "ECL-2.0": "educational community 2.0|educational community license v2.0",
    "EPL-1.0": "epl 1.0|eclipse public license 1.0|eclipse public license 1.0 epl 1.0",
    "EPL-2.0": "epl|epl 2.0|eclipse public license 2.0|eclipse public license 2.0 epl 2.0",
    "EUPL-1.2": "eupl 1.2|european union public license 1.2|european union public license 1.2 eupl 1.2",
    "GPL-1.0-or-later": "gpl|gnu gpl|gnu general public|gnu general public license gpl",
    "GPL-2.0-only": "gpl2|gplv2|gpl 2|gpl 2.0|gpl v2|gnu gplv2|gnu gpl v2|gnu gpl 2|gnu general public license v2"
    "|gnu general public license v2 gplv2|gnu general public license v2.0|gnu general public license 2"
    "|gnu general public license v2.0 only",
    "GPL-2.0-or-later": "gplv2+|gpl2+|gpl 2+|gpl 2.0+|gpl >= 2|gnu general public license v2 or later gplv2+"
    "|gnu general public license v2.0 or later|gplv2 or later",
    "GPL-3.0-only": "gpl3|gplv3|gpl 3|gpl 3.0|gpl v3|gnu gplv3|gnu gpl v3|gnu gpl 3|gnu general public license v3"
    "|gnu general public license v3 gplv3|gnu general public license v3.0|gnu general public license 3"
    "|gnu general public license v3.0 only",
    "GPL-3.0-or-later": "gplv3+|gpl3+|gpl 3+|gpl 3.0+|gpl >= 3|gnu general public license v3 or later gplv3+"
    "|gnu general public license v3.0 or later|gplv3 or later",
    "HPND": "hpnd|historical permission notice and disclaimer|historical permission notice and disclaimer hpnd",
    "ISC": "isc|isc license iscl|iscl",
    "LGPL-2.0-or-later": "lgpl|gnu lgpl|gnu library or lesser general public license lgpl"
    "|gnu lesser general public",
    "LGPL-2.1-only": "lgpl 2.1|lgplv2.1|lgpl v2.1|gnu lgpl 2.1|gnu lesser general public license v2.1",
    "LGPL-2.0-only": "lgplv2|lgpl 2|gnu lesser general public license v2 lgplv2",
    "LGPL-2.1-or-later": "lgpl 2.1+|lgplv2.1+|gnu lesser general public license v2.1 or later",
    "LGPL-3.0-only": "lgpl 3|lgpl 3.0|lgplv3|lgpl v3|gnu lgpl v3|gnu lesser general public license v3"
    "|gnu lesser general public license v3 lgplv3|gnu lesser general public license v3.0",
    "LGPL-3.0-or-later": "lgplv3+|lgpl 3+|lgpl 3.0+|gnu lesser general public license v3 or later lgplv3+",
    "LGPL-2.0-or-later ": "lgplv2+|gnu lesser general public license v2 or later lgplv2+",
    "MIT": "mit|mit license mit|expat|mit expat|mit/expat|mit x11|mit style",
    "MIT-0": "mit 0|mit no attribution|mit no attribution license mit 0",
    "MPL-1.1": "mpl 1.1|mozilla public license 1.1|mozilla public license 1.1 mpl 1.1",
    "MPL-2.0": "mpl|mpl2|mpl 2|mpl 2.0|mpl v2|mpl v2.0|mozilla public license 2.0|mozilla public|mplv2"
    "|mozilla public license 2.0 mpl 2.0|mozilla public license version 2.0",
    "MS-PL": "ms pl|microsoft public|microsoft public license",
    "MulanPSL-2.0": "mulan permissive software license v2 mulanpsl 2.0|mulan psl v2",
    "NCSA": "ncsa|uiuc|university of illinois/ncsa open source|university of illinois/ncsa open source license",
    "OFL-1.1": "ofl|ofl 1.1|sil ofl 1.1|sil open font license 1.1|sil open font license 1.1 ofl 1.1",
    "PSF-2.0": "psf|psfl|psf 2.0|python software foundation|python software foundation license",
    "Python-2.0": "python|python license cnri python license",
    "Unlicense": "unlicense|the unlicense unlicense|unlicensed public domain",
    "WTFPL": "wtfpl|do what the fuck you want to public",
    "X11": "x11",
    "Zlib": "zlib|zlib libpng|zlib/libpng|zlib libpng license",
    "ZPL-2.1": "zpl|zpl 2.1|zope public|zope public license|zope public 2.1",
}
ALIASES = {name: licence.strip() for licence, names in _NAMES.items() for name in names.split("|")}
