# Everything a reader or contributor runs. `make book` and `make test` need nothing but git, make
# and Python: each brings .venv up to date first (at once when it is). Works with GNU make 3.81.

PYTHON ?=
export PYTHON

RUN = .venv/bin/python
# Tests never use a GPU that happens to be there, nor its long runs. Threads that wait without
# spinning keep them quick on a machine that is also doing something else. The rest is what
# tools/build_book.py gives its notebooks, since the pages show what the tests executed.
AS_CPU = BOOK_DEVICE=cpu BOOK_SCALE=quick BOOK_STATIC=1 TQDM_DISABLE=1 OMP_WAIT_POLICY=PASSIVE \
	JUPYTER_PREFER_ENV_PATH=1 PYDEVD_DISABLE_FILE_VALIDATION=1 MPLBACKEND=
PYTEST = $(AS_CPU) PYTHONDONTWRITEBYTECODE=1 $(RUN) -m pytest
TEST_BOOK = .build/test
EXECUTED = .build/executed

.PHONY: help book test audit compare lab doctor record data lint tidy lock clean browser environment
.DEFAULT_GOAL = help

help:    ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

book: environment    ## build the book and print the path of its first page
	@$(RUN) tools/build_book.py

test: environment lint browser    ## all tests, as cpu: lint, helpers, every chapter, the built pages
	@echo "== unit tests"
	@$(PYTEST) -q -n 2 tests --ignore=tests/book
	@echo "== every chapter"
	@rm -rf $(EXECUTED) && mkdir -p $(EXECUTED) && cp -R chapters $(EXECUTED)
	@$(PYTEST) -q -p tests.notebooks.count_cells --nbmake --overwrite $(EXECUTED)
	@echo "== every chapter, on the simulated MPS device"
	@$(AS_CPU) PYTHONDONTWRITEBYTECODE=1 $(RUN) -m tests.simulated_mps.chapters
	@echo "== the built book"
	@$(AS_CPU) $(RUN) tools/build_book.py --output $(TEST_BOOK) --executed $(EXECUTED)
	@BOOK_HTML=$(TEST_BOOK)/_build/html $(PYTEST) -q -n 2 --dist loadfile tests/book

audit: environment browser    ## Lighthouse on three pages of the built book (needs Node)
	@$(AS_CPU) $(RUN) tools/build_book.py --output $(TEST_BOOK)
	@$(RUN) tools/audit.py $(TEST_BOOK)/_build/html

compare: environment    ## build the book a second time: only numbers and dates may differ
	@$(AS_CPU) $(RUN) tools/build_book.py --output $(TEST_BOOK)
	@rm -rf .build/cache .build/again
	@$(AS_CPU) $(RUN) tools/build_book.py --output .build/again
	@$(RUN) tools/compare_builds.py $(TEST_BOOK)/_build/html .build/again/_build/html

lab: environment    ## open the chapters in JupyterLab
	@$(RUN) -m jupyterlab chapters

doctor: environment    ## say what is wrong with this setup, and the command that mends it
	@$(RUN) -m helpers doctor

record: environment    ## measure this machine, and add a record of it to data/records
	@$(RUN) -m helpers record

data: environment    ## download the full MNIST and CIFAR-10 (the book works without)
	@$(RUN) -m helpers data

lint: environment    ## ruff, codespell and mypy
	@echo "== lint"
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --check --quiet . || { echo "run  make tidy  to format"; exit 1; }
	@$(RUN) -m codespell_lib
	@$(RUN) -m mypy --no-error-summary

tidy: environment    ## format the code and strip outputs from the chapters
	@$(RUN) -m ruff check --quiet --fix .
	@$(RUN) -m ruff format --quiet .
	@find chapters -name '*.ipynb' -exec $(RUN) -m nbstripout --keep-id {} +

lock:    ## resolve constraints.txt anew and show that every Mac's Python has wheels (needs uv)
	@sh tools/lock.sh

clean:    ## remove what was built; .venv stays (remove it by hand)
	@rm -rf _build .build .mypy_cache .ruff_cache
	@find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

browser: environment
	@$(RUN) tools/browser.py >/dev/null

environment:
	@python=`sh tools/find_python.sh "$(PYTHON)"` && BOOK_GOAL="$(firstword $(MAKECMDGOALS))" "$$python" tools/environment.py
