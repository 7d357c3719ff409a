"""tools/audit.py without Lighthouse: which pages it picks, and when it is not content."""

import importlib
import json
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def audit():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("audit")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def said(*, score=1.0, largest_ms=500.0, shift=0.0):
    """What Lighthouse says of a page, as far as it is read."""
    category = {"score": score, "auditRefs": [{"id": "cumulative-layout-shift", "weight": 1}]}
    times = {"first-contentful-paint": 400.0, "largest-contentful-paint": largest_ms}
    audits = {name: {"numericValue": value} for name, value in times.items()}
    audits["cumulative-layout-shift"] = {
        "numericValue": shift,
        "title": "Layout shift",
        "score": score,
        "scoreDisplayMode": "numeric",
    }
    names = ("performance", "accessibility", "best-practices", "seo")
    return {"audits": audits, "categories": dict.fromkeys(names, category)}


def test_a_good_page_falls_short_of_nothing(audit):
    result = audit.read(said(), "page", "desktop")
    assert result.scores == (100, 100, 100, 100)
    assert result.shortfalls == []
    assert audit.report([result]) == 0


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"score": 0.94}, "performance 94 < 95"),
        ({"largest_ms": 1001.0}, "largest paint 1.00 s >= 1 s"),
        ({"shift": 0.051}, "layout shift 0.051 > 0.05"),
    ],
)
def test_a_bad_page_is_named_with_what_it_lacks(audit, capsys, bad, complaint):
    results = [audit.read(said(), "good", "desktop"), audit.read(said(**bad), "bad", "desktop")]
    assert audit.report(results) == 1
    printed = capsys.readouterr()
    assert f"bad (desktop): {complaint}" in printed.err
    assert "good" not in printed.err
    assert len(printed.out.splitlines()) == 3


def test_a_page_that_lighthouse_could_not_open_is_an_error(audit):
    with pytest.raises(audit.AuditError, match="no such page"):
        audit.read({"runtimeError": {"message": "no such page"}}, "page", "desktop")


def test_the_best_of_three_attempts_counts_and_a_good_one_is_the_last(audit, monkeypatch):
    slow, good = said(largest_ms=2000.0), said()
    attempts = iter([slow, good, slow])
    monkeypatch.setattr(audit, "look_at", lambda *_: audit.read(next(attempts), "p", "desktop"))
    assert audit.best(Path(), Path(), "", "p", "desktop").shortfalls == []
    assert next(attempts) is slow


def test_it_looks_at_the_landing_page_matmul_and_the_heaviest(audit, tmp_path):
    texts = {audit.LANDING: "a", audit.MATMUL: "b", "chapters/tune/heavy.html": "xyz123" * 9}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert audit.pages(tmp_path) == list(texts)
    (tmp_path / audit.MATMUL).unlink()
    with pytest.raises(audit.AuditError, match="matmul"):
        audit.pages(tmp_path)


def test_without_node_it_says_what_to_install(audit, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(audit.AuditError, match="brew install node"):
        audit.install()


def test_pages_come_compressed(audit, tmp_path):
    (tmp_path / "a.html").write_text("<p>" * 1000)
    with audit.served(tmp_path) as address, urllib.request.urlopen(address + "a.html") as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len(answer.read()) < 200


def test_lighthouse_is_fixed_by_a_lock_that_names_no_server():
    folder = ROOT / "tools/audit"
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]["lighthouse"]
    text = (folder / "package-lock.json").read_text()
    locked = json.loads(text)["packages"]["node_modules/lighthouse"]
    assert locked["version"] == wanted
    assert "resolved" not in text
