"""The limits on functions, classes, files and modules, checked over the syntax tree of each module.

A function's length is that of its body: from the first statement after the docstring to its last
line, nested functions included. Stubs, whose body is only a docstring or `...`, are left out, so
that protocols do not flatter the median. A class or file counts from its first line to its last.

A method's `self` or `cls` is no parameter, and neither are a dataclass's fields. `*args` counts as
a positional parameter, `**kwargs` as one that is not.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "aspira"

MAX_MEDIAN_FUNCTION_LINES = 10
MAX_USUAL_FUNCTION_LINES = 30
MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 250
MAX_FILE_LINES = 400
MAX_PARAMETERS = 6
MAX_INTERNAL_IMPORTS = 12

VAGUE_NAMES = frozenset({"utils", "helpers", "common", "misc", "base", "core"})
MUTABLE_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_TYPES = frozenset({"list", "dict", "set", "defaultdict", "deque", "OrderedDict"})
# How ASGI servers call an application, gRPC a handler, asyncio what serves a connection, and Jinja
# its sandbox.
FOREIGN_PARAMETERS = (
    ["scope", "receive", "send"],
    ["payload", "context"],
    ["payloads", "context"],
    ["reader", "writer"],
    ["obj", "attribute"],
    ["obj", "argument"],
    ["context", "obj", "args"],
    ["context", "operator", "left", "right"],
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Function:
    """A function and where it stands: `owner` is the class whose method it is, or None."""

    node: FunctionNode
    owner: ast.ClassDef | None
    place: str

    @property
    def positional(self) -> list[ast.arg]:
        """The parameters a caller may pass by position, without `self` or `cls`."""
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args]
        is_static = any(
            isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
            for decorator in self.node.decorator_list
        )
        bound = named if self.owner is None or is_static else named[1:]
        return [*bound, *([arguments.vararg] if arguments.vararg else [])]

    @property
    def parameters(self) -> list[ast.arg]:
        arguments = self.node.args
        rest = [arguments.kwarg] if arguments.kwarg else []
        return [*self.positional, *arguments.kwonlyargs, *rest]

    @property
    def body(self) -> list[ast.stmt]:
        has_docstring = ast.get_docstring(self.node, clean=False) is not None
        return self.node.body[1:] if has_docstring else self.node.body

    @property
    def num_lines(self) -> int:
        body = self.body
        return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0

    @property
    def is_stub(self) -> bool:
        return all(
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and statement.value.value is ...
            for statement in self.body
        )

    @property
    def fixes_positions(self) -> bool:
        """Whether somebody else's protocol says which parameters are positional."""
        name = self.node.name
        is_dunder = name.startswith("__") and name.endswith("__")
        if is_dunder and name not in {"__init__", "__call__"}:
            return True
        return [parameter.arg for parameter in self.positional] in FOREIGN_PARAMETERS


def functions_of(tree: ast.Module, *, place: str) -> list[Function]:
    owners = {
        child: node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
    }
    return [
        Function(node, owners.get(node), f"{place}:{node.lineno} {node.name}")
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode)
    ]


def is_bool(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).strip("'\"") in {
        "bool",
        "bool | None",
        "None | bool",
        "Optional[bool]",
    }


def function_problems(function: Function) -> Iterator[str]:
    if function.num_lines > MAX_FUNCTION_LINES:
        yield f"{function.place} has {function.num_lines} lines"
    if len(function.parameters) > MAX_PARAMETERS:
        yield f"{function.place} has {len(function.parameters)} parameters"
    if len(function.positional) > 1 and not function.fixes_positions:
        yield f"{function.place} takes more than its first parameter by position"
    if sum(is_bool(parameter.annotation) for parameter in function.parameters) > 1:
        yield f"{function.place} takes more than one bool"


def length_problems(lengths: Iterable[int]) -> Iterator[str]:
    ordered = sorted(lengths)
    if ordered and median(ordered) >= MAX_MEDIAN_FUNCTION_LINES:
        yield f"half of all functions have {median(ordered)} lines or more"
    num_long = sum(length > MAX_USUAL_FUNCTION_LINES for length in ordered)
    if num_long * 10 > len(ordered):
        yield f"{num_long} of {len(ordered)} functions have more than 30 lines"


def class_problems(tree: ast.Module, *, place: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            num_lines = (node.end_lineno or 0) - node.lineno + 1
            if num_lines >= MAX_CLASS_LINES:
                yield f"{place}:{node.lineno} {node.name} has {num_lines} lines"


def file_problems(text: str, *, place: str) -> Iterator[str]:
    num_lines = len(text.splitlines())
    if num_lines >= MAX_FILE_LINES:
        yield f"{place} has {num_lines} lines"
    if not (ast.get_docstring(ast.parse(text)) or "").strip():
        yield f"{place} does not say why it exists"


def statements_run_on_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at module level, those inside its `if`, `try`, `with` and loops included."""
    for statement in body:
        yield statement
        if isinstance(statement, FunctionNode | ast.ClassDef):
            continue
        for _, value in ast.iter_fields(statement):
            for part in value if isinstance(value, list) else ():
                if isinstance(part, ast.stmt):
                    yield from statements_run_on_import([part])
                elif isinstance(part, ast.ExceptHandler | ast.match_case):
                    yield from statements_run_on_import(part.body)


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        function = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        return name in MUTABLE_TYPES
    return isinstance(value, MUTABLE_DISPLAYS)


def state_problems(tree: ast.Module, *, place: str) -> Iterator[str]:
    for statement in statements_run_on_import(tree.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [ast.unparse(target) for target in targets]
            if names != ["__all__"] and is_mutable(statement.value):
                yield f"{place}:{statement.lineno} {', '.join(names)} is mutable"


def problems_of(text: str, *, place: str) -> list[str]:
    """Every limit that one file breaks."""
    tree = ast.parse(text)
    return [
        *file_problems(text, place=place),
        *class_problems(tree, place=place),
        *state_problems(tree, place=place),
        *(
            problem
            for function in functions_of(tree, place=place)
            for problem in function_problems(function)
        ),
    ]


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_file_keeps_its_shape() -> None:
    problems = [
        problem
        for path in source_files()
        for problem in problems_of(path.read_text(), place=str(path.relative_to(ROOT)))
    ]
    assert not problems, "\n".join(problems)


def test_functions_are_short_on_the_whole() -> None:
    lengths = [
        function.num_lines
        for path in source_files()
        for function in functions_of(ast.parse(path.read_text()), place=path.name)
        if not function.is_stub
    ]
    assert lengths
    assert not list(length_problems(lengths))


def test_modules_know_few_others() -> None:
    graph = grimp.build_graph("aspira", cache_dir=None)
    num_imports = {
        module: len(graph.find_modules_directly_imported_by(module))
        for module in graph.modules - {"aspira.app", "aspira.protocols"}
    }
    assert {m: n for m, n in num_imports.items() if n > MAX_INTERNAL_IMPORTS} == {}


def vague_parts(path: Path) -> frozenset[str]:
    return VAGUE_NAMES & {*path.parent.parts, path.stem}


@pytest.mark.parametrize("folder", ["src", "tests", "scripts"])
def test_no_file_or_folder_has_a_vague_name(folder: str) -> None:
    paths = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))
    assert [str(path) for path in paths if vague_parts(path)] == []


def function_of_length(num_lines: int) -> str:
    return "def f():\n    '''Why.\n\n    More.\n    '''\n" + "    x = 1\n" * num_lines


@pytest.mark.parametrize(
    "code",
    [
        function_of_length(61),
        "def f(a, *, b, c, d, e, g, h): pass",
        "def f(a, b): pass",
        "def f(a, *rest): pass",
        "async def f(a, b): pass",
        "def outer():\n    def f(a, b): pass",
        "class A:\n    def __init__(self, a, b): pass",
        "class A:\n    def __call__(self, a, b): pass",
        "class A:\n    @staticmethod\n    def f(a, b): pass",
        "def f(*, a: bool, b: bool): pass",
        "def f(a: bool, *, b: 'bool | None' = None): pass",
        "class A:\n" + "    x = 1\n" * 249,
        "x = 1\n" * 399,
        "A = []",
        "A: Mapping[str, int] = {}",
        "A = B = {1}",
        "A = [x for x in y]",
        "A = dict(a=1)",
        "A = collections.defaultdict(list)",
        "A = deque[int]()",
        "if x:\n    A = []",
        "try:\n    pass\nexcept E:\n    A = set()",
    ],
)
def test_a_broken_limit_is_found(code: str) -> None:
    assert len(problems_of(f'"""Why."""\n{code}', place="sample")) == 1


@pytest.mark.parametrize("text", ["", "x = 1", '""" """'])
def test_a_file_without_a_reason_is_found(text: str) -> None:
    assert problems_of(text, place="sample") == ["sample does not say why it exists"]


@pytest.mark.parametrize(
    "code",
    [
        function_of_length(60),
        "def f(a, *, b, c, d, e, g): pass",
        "class A:\n    def f(self, a, *, b, c, d, e, g): pass",
        "class A:\n    @classmethod\n    def f(cls, a, *, b): pass",
        "class A:\n    def __exit__(self, kind, error, trace): pass",
        "class A:\n    async def __call__(self, scope, receive, send): pass",
        "async def f(scope, receive, send, *, clock): pass",
        "f = lambda a, b: a",
        "def f(*arguments, a: bool, b: int): pass",
        "@dataclass\nclass A:\n    a: bool\n    b: bool\n    c: list = field(default_factory=list)",
        "class A:\n" + "    x = 1\n" * 248,
        "x = 1\n" * 398,
        "__all__ = ['a']",
        "A = (1, 2)",
        "A = MappingProxyType({'a': 1})",
        "A = frozenset({1})",
        "def f():\n    a = []",
    ],
)
def test_what_is_within_the_limits_passes(code: str) -> None:
    assert problems_of(f'"""Why."""\n{code}', place="sample") == []


@pytest.mark.parametrize(
    ("lengths", "num_problems"),
    [([9, 9, 9], 0), ([9, 10, 10], 1), ([1] * 9 + [31], 0), ([1] * 8 + [31, 31], 1)],
)
def test_lengths_on_the_whole(lengths: list[int], num_problems: int) -> None:
    assert len(list(length_problems(lengths))) == num_problems


def test_stubs_are_told_from_functions() -> None:
    code = (
        "def f(): ...\ndef g():\n    '''Why.'''\n    ...\ndef h():\n    '''Why.'''\ndef k(): pass"
    )
    assert [f.is_stub for f in functions_of(ast.parse(code), place="")] == [True, True, True, False]


def test_vague_names_are_found_in_files_and_folders() -> None:
    assert vague_parts(Path("src/aspira/core/engine.py")) == {"core"}
    assert vague_parts(Path("src/aspira/utils.py")) == {"utils"}
    assert vague_parts(Path("src/aspira/score.py")) == frozenset()
