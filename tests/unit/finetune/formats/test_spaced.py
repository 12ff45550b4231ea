"""Code in the form of CodeXGLUE's token completion."""

from finetune.formats.spaced import spaced_lexemes, without_ends


def test_ends_of_files_and_lines_are_not_judged_and_bytes_are_right() -> None:
    line = "<s> import größe <EOL> größe = <NUM_LIT:1> <EOL> f ( \"<STR_LIT>\" , 'x' ) <EOL> </s>"
    text = without_ends(line)
    assert text.startswith("import größe <EOL>")
    assert text.endswith(") <EOL>")
    found = spaced_lexemes(text)
    assert [(one.text, str(one.kind)) for one in found] == [
        ("import", "keyword"),
        ("größe", "identifier"),
        ("größe", "identifier"),
        ("=", "operator"),
        ("<NUM_LIT:1>", "literal"),
        ("f", "identifier"),
        ("(", "operator"),
        ('"<STR_LIT>"', "literal"),
        (",", "operator"),
        ("'x'", "literal"),
        (")", "operator"),
    ]
    assert all(text.encode()[one.start_byte : one.end_byte].decode() == one.text for one in found)


def test_words_of_java_are_keywords_too() -> None:
    kinds = {one.text: str(one.kind) for one in spaced_lexemes("public void $f ( ) { .5 }")}
    assert kinds["public"] == kinds["void"] == "keyword"
    assert kinds["$f"] == "identifier"
    assert kinds[".5"] == "literal"
