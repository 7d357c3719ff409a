"""A Mac has MPS: there is nothing to simulate, and nothing to test here."""

import sys

collect_ignore_glob = ["test_*.py", "rules/*"] if sys.platform == "darwin" else []
