"""Each rule passes a good notebook and fails on one that breaks it."""

import copy

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from . import count_cells, rules

FIGURE = {
    "figure": {"caption": "Time grows with the square of the side.", "name": "fig-a-time"},
    "image": {"alt": "A curve that rises ever more steeply over four sides."},
}


def exercise(n: int) -> str:
    return f"```{{exercise}} Measure it on your Mac\n:label: ex-a-{n}\n\nDo it.\n```"


def solution(n: int) -> str:
    return f"```{{solution-start}} ex-a-{n}\n:class: dropdown\n```"


END = "```{solution-end}\n```"


def good_cells():
    return [
        new_markdown_cell(
            "(a)=\n# A\n\n:::{admonition} Before you start\n:class: head\n\n- x\n:::"
        ),
        new_code_cell("import torch\n\nfrom helpers import pick_device\n\ndevice = pick_device()"),
        new_code_cell('sizes = {"quick": 1, "full": 2}', metadata={"tags": ["settings"]}),
        new_code_cell('on_gpu = device.type in ("mps", "cuda")'),
        new_markdown_cell("This fails:"),
        new_code_cell('torch.ones(1, device="x")', metadata={"tags": ["raises-exception"]}),
        new_code_cell("fig, ax = plt.subplots()", metadata={"mystnb": FIGURE}),
        new_markdown_cell(
            "```bash\n# Linux\npip install torch --index-url https://x/whl/cu130\n```"
        ),
        new_markdown_cell('```bash\npip install "jupyter-book>=1.0.4,<2"\n```'),
        new_markdown_cell(exercise(1)),
        new_markdown_cell(solution(1)),
        new_code_cell("1 + 1"),
        new_markdown_cell(END),
        new_markdown_cell(exercise(2)),
        new_markdown_cell(f"{solution(2)}\n\nBecause.\n\n{END}"),
        new_code_cell("print(stamp(device))"),
        new_markdown_cell(":::{admonition} To take with you\n:class: foot\n\n- y\n:::"),
    ]


@pytest.fixture
def notebook():
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "x"},
        "execution": {"timeout": 60},
    }
    return new_notebook(cells=good_cells(), metadata=metadata)


@pytest.mark.parametrize("rule", rules.CHAPTERS)
def test_a_good_notebook_passes(rule, notebook):
    assert list(rule(notebook)) == []


def has_outputs(notebook):
    notebook.cells[1].execution_count = 1


def has_the_same_id_twice(notebook):
    notebook.cells[2].id = notebook.cells[1].id


def is_of_an_old_format(notebook):
    notebook.nbformat_minor = 4


def has_another_kernel(notebook):
    notebook.metadata.kernelspec.name = "torch-env"


def has_no_timeout(notebook):
    del notebook.metadata["execution"]


def has_a_second_timeout(notebook):
    notebook.metadata["mystnb"] = {"execution_timeout": 60}


def has_two_titles(notebook):
    notebook.cells[4].source = "# Another\n\nThis fails:"


def has_no_head(notebook):
    notebook.cells[0].source = "# A"


def has_no_foot(notebook):
    del notebook.cells[-1]


def has_no_stamp(notebook):
    notebook.cells[-2].source = "print(device)"


def has_no_settings(notebook):
    notebook.cells[2].metadata = {}


def has_one_exercise(notebook):
    del notebook.cells[13:15]


def has_an_unsolved_exercise(notebook):
    notebook.cells[14].source = "Because."


def has_a_solution_that_never_ends(notebook):
    notebook.cells[12].source = "End."


def has_an_unfolded_solution(notebook):
    notebook.cells[10].source = "```{solution-start} ex-a-1\n```"


def has_no_exercise_on_a_mac(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("your Mac", "your computer")


def has_a_long_cell(notebook):
    notebook.cells[3].source = "x = 1\n" * 26


def has_a_shell_line(notebook):
    notebook.cells[3].source = "!ls"


def has_no_helpers(notebook):
    notebook.cells[1].source = "import torch"


def moves_to(code):
    def breaks(notebook):
        notebook.cells[3].source = code

    breaks.__name__ = f"runs {code}"
    return breaks


def skips_half(notebook):
    for _, cell in rules.code_cells(notebook)[1::2]:
        cell.metadata["tags"] = [*rules.tags(cell), "skip-execution"]


def does_not_announce_its_error(notebook):
    notebook.cells[4].source = "Next:"


def has_no_alt(notebook):
    del notebook.cells[6].metadata["mystnb"]["image"]


def has_a_file_name_as_alt(notebook):
    alt = "_build/jupyter_execute/bbb1a06684e3e003116bc77efce3b8dcd7.svg"
    notebook.cells[6].metadata["mystnb"]["image"]["alt"] = alt


def has_no_caption(notebook):
    del notebook.cells[6].metadata["mystnb"]["figure"]["caption"]


def has_a_nameless_figure(notebook):
    notebook.cells[6].metadata["mystnb"]["figure"]["name"] = "time"


def has_a_bare_figure(notebook):
    notebook.cells[6].metadata = {}


def installs(line):
    def breaks(notebook):
        notebook.cells[8].source = f"```bash\n{line}\n```"

    breaks.__name__ = line
    return breaks


def installs_in_code(notebook):
    notebook.cells[3].source = 'run("pip install torch")'


BREAKS = [
    (has_outputs, rules.has_no_outputs),
    (has_the_same_id_twice, rules.is_valid),
    (is_of_an_old_format, rules.is_valid),
    (has_another_kernel, rules.uses_the_python3_kernel),
    (has_no_timeout, rules.has_one_timeout_key),
    (has_a_second_timeout, rules.has_one_timeout_key),
    (has_two_titles, rules.has_one_title),
    (has_no_head, rules.has_head_and_foot),
    (has_no_foot, rules.has_head_and_foot),
    (has_no_stamp, rules.has_head_and_foot),
    (has_no_settings, rules.has_one_settings_cell),
    (has_one_exercise, rules.has_exercises_with_solutions),
    (has_an_unsolved_exercise, rules.has_exercises_with_solutions),
    (has_a_solution_that_never_ends, rules.has_exercises_with_solutions),
    (has_an_unfolded_solution, rules.has_exercises_with_solutions),
    (has_no_exercise_on_a_mac, rules.has_exercises_with_solutions),
    (has_a_long_cell, rules.has_short_cells),
    (has_a_shell_line, rules.is_plain_python),
    (has_no_helpers, rules.imports_helpers_first),
    (moves_to('x = torch.ones(1, device="mps")'), rules.names_no_device),
    (moves_to('model.to("cuda:0")'), rules.names_no_device),
    (moves_to('name = "cuda" if on_gpu else "cpu"'), rules.names_no_device),
    (moves_to("model.cuda()"), rules.names_no_device),
    (skips_half, rules.skips_few_cells),
    (does_not_announce_its_error, rules.announces_errors),
    (has_no_alt, rules.describes_figures),
    (has_a_file_name_as_alt, rules.describes_figures),
    (has_no_caption, rules.describes_figures),
    (has_a_nameless_figure, rules.describes_figures),
    (has_a_bare_figure, rules.describes_figures),
    (
        installs("pip install torch --index-url https://x/whl/cu130"),
        rules.install_commands_are_right,
    ),
    (installs("pip install torch -f https://x/whl/macos"), rules.install_commands_are_right),
    (installs("pip install jupyter-book"), rules.install_commands_are_right),
    (installs("pip install -U 'jupyter-book>=1.0.4' nbmake"), rules.install_commands_are_right),
    (installs_in_code, rules.install_commands_are_right),
]


@pytest.mark.parametrize(("breaks", "rule"), BREAKS, ids=lambda it: it.__name__)
def test_a_broken_notebook_is_reported(breaks, rule, notebook):
    notebook = copy.deepcopy(notebook)
    breaks(notebook)
    assert list(rule(notebook)) != []


def test_every_rule_was_seen_to_fail():
    assert {rule for _, rule in BREAKS} == set(rules.CHAPTERS)


def test_c07_names_in_a_demo_and_in_lookups_are_allowed(notebook):
    notebook.cells[
        3
    ].source = 'label = {"mps": "Apple GPU"}["mps"]\nif device.type == "mps":\n    pass'
    assert list(rules.names_no_device(notebook)) == []
    notebook.cells[3] = new_code_cell('x.to("mps")', metadata={"tags": ["mac-demo"]})
    assert list(rules.names_no_device(notebook)) == []


def test_a_figure_name_used_twice_is_reported(notebook):
    assert list(rules.repeats_no_figure_name([notebook])) == []
    assert list(rules.repeats_no_figure_name([notebook, notebook])) == [
        "two figures are named fig-a-time"
    ]


GOOD_TOC = "root: chapters/index\nparts:\n- chapters:\n  - file: chapters/a/b\n"
BAD_TOCS = {
    "a list": "- file: chapters/index\n- file: chapters/a/b\n",
    "no root": "chapters:\n- file: chapters/index\n- file: chapters/a/b\n",
    "a missing file": GOOD_TOC + "  - file: chapters/a/c\n",
    "an orphan": "root: chapters/index\n",
}


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "chapters/a").mkdir(parents=True)
    (tmp_path / "chapters/index.md").touch()
    (tmp_path / "chapters/a/b.ipynb").touch()
    return tmp_path


def test_c49_a_good_toc_passes(pages):
    (pages / "_toc.yml").write_text(GOOD_TOC)
    assert list(rules.toc_matches_files(pages)) == []


@pytest.mark.parametrize("toc", BAD_TOCS.values(), ids=BAD_TOCS)
def test_c49_a_bad_toc_is_reported(toc, pages):
    (pages / "_toc.yml").write_text(toc)
    assert list(rules.toc_matches_files(pages)) != []


def test_c57_executed_and_skipped_cells_are_counted(notebook, tmp_path):
    import nbformat

    notebook.cells[3].metadata["tags"] = ["skip-execution"]
    nbformat.write(notebook, tmp_path / "a.ipynb")
    assert count_cells.count(tmp_path / "a.ipynb").startswith("6 executed, 1 skipped (")
