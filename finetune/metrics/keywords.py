"""The keywords that CodeBLEU weighs five times as much as other tokens, from each language's specification."""

_JAVA = """
    abstract assert boolean break byte case catch char class const continue default do double else enum extends final
    finally float for goto if implements import instanceof int interface long native new package private protected
    public return short static strictfp super switch synchronized this throw throws transient try void volatile while
"""
"""Java Language Specification 17, section 3.9: reserved keywords, without contextual keywords and literals."""

_CSHARP = """
    abstract as base bool break byte case catch char checked class const continue decimal default delegate do double
    else enum event explicit extern false finally fixed float for foreach goto if implicit in int interface internal
    is lock long namespace new null object operator out override params private protected public readonly ref return
    sbyte sealed short sizeof stackalloc static string struct switch this throw true try typeof uint ulong unchecked
    unsafe ushort using virtual void volatile while
    add alias ascending async await by descending dynamic equals from get global group into join let nameof notnull on
    orderby partial remove select set unmanaged value var when where yield
"""
"""C# language reference, "C# Keywords": reserved keywords, then the contextual ones of C# 8."""

_PYTHON = """
    False None True and as assert async await break class continue def del elif else except finally for from global if
    import in is lambda nonlocal not or pass raise return try while with yield match case type
"""
"""Python language reference 3.12, sections 2.3.1 and 2.3.2, except the soft keyword `_`."""

_JAVASCRIPT = """
    await break case catch class const continue debugger default delete do else enum export extends false finally for
    function if import in instanceof new null return super switch this throw true try typeof var void while with yield
    let static implements interface package private protected public
"""
"""ECMA-262 (2023), section 12.7.2: reserved words, then those reserved in strict mode."""

_GO = """
    break case chan const continue default defer else fallthrough for func go goto if import interface map package
    range return select struct switch type var
"""
"""The Go Programming Language Specification, "Keywords"."""

_PHP = """
    __halt_compiler abstract and array as break callable case catch class clone const continue declare default die do
    echo else elseif empty enddeclare endfor endforeach endif endswitch endwhile eval exit extends final finally fn for
    foreach function global goto if implements include include_once instanceof insteadof interface isset list match
    namespace new or print private protected public readonly require require_once return static switch throw trait try
    unset use var while xor yield
"""
"""PHP manual, "List of Keywords", except `yield from`, which is two tokens."""

_RUBY = """
    __ENCODING__ __LINE__ __FILE__ BEGIN END alias and begin break case class def defined? do else elsif end ensure
    false for if in module next nil not or redo rescue retry return self super then true undef unless until when while
    yield
"""
"""Ruby documentation, "Keywords"."""

KEYWORDS: dict[str, frozenset[str]] = {
    "java": frozenset(_JAVA.split()),
    "csharp": frozenset(_CSHARP.split()),
    "python": frozenset(_PYTHON.split()),
    "javascript": frozenset(_JAVASCRIPT.split()),
    "go": frozenset(_GO.split()),
    "php": frozenset(_PHP.split()),
    "ruby": frozenset(_RUBY.split()),
}
"""The keywords by the name of the tree-sitter grammar."""
