"""tools/build_book.py on a book of two pages, with the real _config.yml: a failure fails twice."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
HELPERS = """
from pathlib import Path

VALUE = 1

def pick_device():
    return "cpu"

def pick_scale(device):
    return "quick"

def data_root():
    return Path(__file__).parent.parent / "datasets"
"""


class Book:
    """A small book in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        (folder / "helpers").mkdir()
        (folder / "helpers/__init__.py").write_text(HELPERS)
        shutil.copy(ROOT / "helpers/svg.py", folder / "helpers")
        shutil.copy(ROOT / "_config.yml", folder)
        shutil.copytree(ROOT / "_static", folder / "_static")
        (folder / "chapters/reference").mkdir(parents=True)
        shutil.copy(ROOT / "chapters/reference/references.bib", folder / "chapters/reference")
        self.write_toc("chapters/page")
        self.write("index")

    @property
    def page(self) -> Path:
        return self.root / "_build/html/chapters/page.html"

    def write_toc(self, *files: str) -> None:
        chapters = "".join(f"- file: {file}\n" for file in files)
        (self.root / "_toc.yml").write_text(
            f"format: jb-book\nroot: chapters/index\nchapters:\n{chapters}"
        )

    def write(self, name: str, *code: str, timeout: int = 60) -> None:
        """Write a chapter: Markdown if it has no code, so that no kernel is started."""
        path = self.root / "chapters" / name
        if not code:
            path.with_suffix(".md").write_text(f"# {name}\n\nText.\n")
            return
        cells = [new_markdown_cell(f"# {name}"), *map(new_code_cell, code)]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        metadata = {"kernelspec": kernel, "execution": {"timeout": timeout}}
        nbformat.write(new_notebook(cells=cells, metadata=metadata), path.with_suffix(".ipynb"))

    def build(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        with self.start(*options, **environment) as process:
            output = process.communicate(timeout=120)[0]
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def start(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        program = str(ROOT / "tools/build_book.py")
        return subprocess.Popen(
            [sys.executable, program, "--root", str(self.root), *options],
            env={**os.environ, "PYTHONPATH": str(self.root), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Tests in the background of a shell would pass on that they ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def fails_twice(self) -> str:
        """Build twice, assert that both fail and leave no page to trust, and return the output."""
        outputs = []
        for _ in range(2):
            built = self.build()
            assert built.returncode != 0, built.stdout
            assert not (self.root / "_build/html").exists()
            outputs.append(built.stdout)
        return outputs[1]


@pytest.fixture
def book(tmp_path):
    return Book(tmp_path)


def test_an_unchanged_book_is_not_built_again(book):
    book.write("page", "print('a' + 'b')")
    first = book.build()
    assert first.returncode == 0, first.stdout
    assert first.stdout.splitlines()[-1].endswith(str(book.root / "_build/html/index.html"))
    assert "ab" in book.page.read_text()
    entrance = BeautifulSoup((book.root / "_build/html/index.html").read_text(), "html.parser")
    assert entrance.title.text == "PyTorch on Apple Silicon"
    assert (book.root / "_build/html" / entrance.a["href"]).is_file()
    assert entrance.find(rel="icon")["href"] == "data:,"
    written = book.page.stat().st_mtime_ns
    assert "Building" not in book.build().stdout
    assert book.page.stat().st_mtime_ns == written


def test_c44_a_failing_cell_fails_the_build_twice_and_is_shown(book):
    book.write("page", "x = 3", "def deep():\n    return x / 0\n\ndeep()")
    output = book.fails_twice()
    assert "chapters/page.ipynb" in output
    assert "    return x / 0" in output
    assert "In[2]" in output
    assert "ZeroDivisionError: division by zero" in output


def test_c43_a_timeout_fails_the_build_loudly(book):
    book.write("page", "import time; time.sleep(60)", timeout=1)
    output = book.fails_twice()
    assert "chapters/page.ipynb" in output
    assert "timed out" in output
    assert "time.sleep(60)" in output


def test_c50_a_stray_warning_fails_the_build_twice_and_is_shown(book):
    book.write("page", "import warnings; warnings.warn('stray')")
    assert "UserWarning: stray" in book.fails_twice()


def test_a_warning_whose_cause_is_mended_outside_the_book_does_not_stick(book):
    trouble = book.root / "trouble"  # no input of the book, so that nothing seems to have changed
    book.write(
        "page",
        "import os, sys\n\nif os.path.exists('../trouble'):\n    print(1, file=sys.stderr)",
    )
    trouble.touch()
    book.fails_twice()
    trouble.unlink()
    built = book.build()
    assert built.returncode == 0, built.stdout


def test_c49_a_missing_toc_entry_fails_the_build_twice(book):
    book.write("page")
    book.write_toc("chapters/page", "chapters/forgotten")
    assert "chapters/forgotten" in book.fails_twice()


def test_c49_an_orphan_chapter_fails_the_build_twice(book):
    book.write("page")
    book.write("orphan")
    assert "orphan" in book.fails_twice()


def test_an_unresolved_reference_fails_the_build_twice(book):
    book.write("page")
    (book.root / "chapters/page.md").write_text("# page\n\nSee {ref}`nowhere`.\n")
    assert "nowhere" in book.fails_twice()


def test_c51_a_changed_helper_reaches_the_page(book):
    book.write("page", "import helpers\n\nprint('value', helpers.VALUE)")
    assert book.build().returncode == 0
    assert "value 1" in book.page.read_text()
    source = book.root / "helpers/__init__.py"
    source.write_text(source.read_text().replace("VALUE = 1", "VALUE = 2"))
    assert book.build().returncode == 0
    assert "value 2" in book.page.read_text()


def test_downloaded_data_and_another_scale_reach_the_page(book):
    book.write(
        "page",
        "import os\n\nprint(os.environ['BOOK_SCALE'], os.path.exists('../datasets/MNIST/raw/a'))",
    )
    assert book.build().returncode == 0
    assert "quick False" in book.page.read_text()
    (book.root / "datasets/MNIST/raw").mkdir(parents=True)
    (book.root / "datasets/MNIST/raw/a").touch()
    source = book.root / "helpers/__init__.py"
    source.write_text(source.read_text().replace('"quick"', '"full"'))
    assert book.build().returncode == 0
    assert "full True" in book.page.read_text()


def test_progress_bars_are_quiet(book):
    book.write("page", "from tqdm.auto import tqdm\n\nprint(sum(tqdm(range(30))))")
    built = book.build()
    assert built.returncode == 0, built.stdout
    assert "435" in book.page.read_text()


def test_a_notebook_that_the_tests_executed_is_not_run_again(book):
    book.write("page", "import time\n\nprint('at', time.time_ns())")
    source = book.root / "chapters/page.ipynb"
    executed = book.root / ".build/executed/chapters/page.ipynb"
    executed.parent.mkdir(parents=True)
    notebook = nbformat.read(source, as_version=4)
    NotebookClient(notebook).execute()
    nbformat.write(notebook, executed)
    built = book.build("--executed", str(book.root / ".build/executed"))
    assert built.returncode == 0, built.stdout
    assert "chapters/page" not in built.stdout  # it names what it runs
    assert notebook.cells[1].outputs[0].text.strip() in book.page.read_text()


DRAWS = """import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

set_matplotlib_formats("svg")
plt.rcParams.update({"svg.fonttype": "none", "text.color": "#1b1f24"})
plt.plot([1, 2])
plt.title("rising");"""


def test_a_figure_stands_in_the_page_in_the_colours_of_the_page(book):
    book.write("page", DRAWS)
    figure = {"caption": "A line.", "name": "fig-line"}
    described = {"figure": figure, "image": {"alt": "A line from 1 to 2."}}
    path = book.root / "chapters/page.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["mystnb"] = described
    nbformat.write(notebook, path)
    built = book.build()
    assert built.returncode == 0, built.stdout
    page = BeautifulSoup(book.page.read_text(), "html.parser")
    drawing = page.select_one("figure#fig-line svg.figure")
    assert drawing["aria-label"] == "A line from 1 to 2."
    assert "var(--figure-ink" in str(drawing.find("text", string="rising"))
    assert page.select("article img") == []


def test_what_is_printed_in_a_row_is_one_block(book):
    book.write(
        "page",
        """import time

for word in ("one ", "two", ", three"):
    print(word, end="", flush=True)
    time.sleep(0.3)  # so that each comes by itself
display("a picture")
print("four")""",
    )
    built = book.build()
    assert built.returncode == 0, built.stdout
    page = BeautifulSoup(book.page.read_text(), "html.parser")
    blocks = [block.get_text() for block in page.select(".cell_output > .output")]
    assert [text.strip() for text in blocks] == ["one two, three", "'a picture'", "four"]


def test_a_page_is_described_by_its_first_paragraph(book):
    book.write("page")
    text = "A first paragraph: 3 < 4, & more. " + "Words and words. " * 20
    (book.root / "chapters/page.md").write_text(f"# page\n\n{text}\n\nAnother.\n")
    built = book.build()
    assert built.returncode == 0, built.stdout
    page = BeautifulSoup(book.page.read_text(), "html.parser")
    description = page.find("meta", attrs={"name": "description"})["content"]
    assert description.startswith("A first paragraph: 3 < 4, & more. Words")
    assert len(description) <= 160


def test_c46_jupyter_book_2_is_refused_with_the_pin(book):
    book.write("page")
    fake = book.root / "jupyter_book-2.1.7.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyter-book\nVersion: 2.1.7\n")
    built = book.build()
    assert built.returncode != 0
    (line,) = built.stdout.splitlines()
    assert "2.1.7 is installed" in line
    assert line.endswith('pip install "jupyter-book>=1.0.4,<2"')


@pytest.mark.parametrize("answer", ['return "cpu"', "return Path(__file__)"])
def test_an_unknown_device_or_a_bad_data_folder_is_refused_in_one_line(book, answer):
    book.write("page")
    source = book.root / "helpers/__init__.py"
    source.write_text(source.read_text().replace(answer, 'raise ValueError("not this") #'))
    built = book.build()
    assert (built.returncode, built.stdout) == (1, "not this\n")


@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_an_interrupted_build_leaves_nothing_to_trust_and_can_be_run_again(book, ended):
    book.write("page", "import pathlib, time\n\npathlib.Path('started').touch()\ntime.sleep(60)")
    with book.start() as process:
        deadline = time.monotonic() + 60
        while not (book.root / "chapters/started").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        if ended == signal.SIGINT:
            os.killpg(process.pid, ended)  # a terminal tells every process
        else:
            process.terminate()
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert not (book.root / "_build/html/.inputs").exists()
    (book.root / "chapters/started").unlink()
    book.write("page", "print('a' + 'b')")
    assert book.build().returncode == 0
    assert "ab" in book.page.read_text()


def test_an_interruption_while_pages_are_written_is_noticed(book):
    """As after a power cut: pages are there, the stamp, written last, is not."""
    book.write("page")
    assert book.build().returncode == 0
    (book.root / "_build/html/.inputs").unlink()
    book.page.write_text("half a page")
    assert book.build().returncode == 0
    assert "half a page" not in book.page.read_text()
