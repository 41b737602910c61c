# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a test says of itself, for whoever names its cases: the lines of its strings, and the names
of its test functions. Comments and the docstrings of Python are neither. A string is taken as it
stands in the source, a `{value}` in it too.

C and Rust, Python, and shell. A shell's quotes are looked at line by line: of a text over several
lines what stands in quotes of its own."""
import ast
import io
import re
import tokenize

# A comment, or a string; what is neither (a character) is stepped over.
OF_C = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)"""
                  r"""|"(?P<text>(?:\\.|[^"\\])*)"|'(?:\\[^\n']+'|\\''|[^'\\\n]')""", re.S)
OF_SHELL = re.compile(r"""\\.|(?:^|(?<=\s))\#.*|"(?P<text>(?:\\.|[^"\\])*)"|'(?P<raw>[^']*)'""")
# Its attributes stand between the two. Or a macro of the file makes it: `theorem!(name, …)`.
RUST_TEST = re.compile(r"#\[test\][^{}]*?\bfn\s+(\w+)|^\w+!\((\w+),", re.M)


def of_c(source):
    """Its texts, and the source without them and without comments."""
    texts, rest, at = [], [], 0
    for found in OF_C.finditer(source):
        rest.append(source[at:found.start()])
        at = found.end()
        texts += [found["raw"] or found["text"] or ""]
    return texts, "".join([*rest, source[at:]])


def of_python(source):
    tree = ast.parse(source)
    documents = set()
    for node in ast.walk(tree):
        first = getattr(node, "body", None)
        first = first[0] if isinstance(first, list) and first else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            documents.add(first.lineno)
    lines, texts, depth, begin = source.splitlines(keepends=True), [], 0, None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "STRING" and not depth and token.start[0] not in documents:
            texts.append(token.string)
        elif kind == "FSTRING_START":  # From Python 3.12 on it is several tokens.
            depth, begin = depth + 1, begin if depth else token.start
        elif kind == "FSTRING_END":
            depth -= 1
            if not depth:
                part = lines[begin[0] - 1:token.end[0]]
                part[-1] = part[-1][:token.end[1]]
                part[0] = part[0][begin[1]:]
                texts.append("".join(part))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return texts, [name for name in names if name.startswith("test")]


def of_shell(source):
    texts = []
    for line in source.splitlines():
        for found in OF_SHELL.finditer(line):
            texts += [found["text"] or found["raw"] or ""]
    return texts


def said(path, source):
    """The lines of its strings, and the names of its test functions."""
    names, first = [], source.split("\n", 1)[0]
    if path.endswith((".rs", ".c", ".h")):
        texts, rest = of_c(source)
        names = [found[1] or found[2] for found in RUST_TEST.finditer(rest)]
    elif path.endswith(".py") or "python" in first:
        texts, names = of_python(source)
    else:
        texts = of_shell(source)
    return [line for text in texts for line in text.splitlines()], names
