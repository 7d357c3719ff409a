"""The table of published figures: what it holds, and what it refuses."""

import pytest

from helpers.published import CSV, PublishedError, published

HEAD, FIRST, *_ = CSV.read_text(encoding="utf-8").splitlines()


def test_figures_of_the_articles_are_there_with_source_machine_and_doubts():
    figures = published()
    gpu = figures["s0-19-gpu"]
    assert (gpu.value, gpu.unit, gpu.claim, gpu.device) == (1.8, "s", "S0-19", "mps")
    assert "M1 Pro" in gpu.machine
    assert "without waiting" in gpu.doubts
    claims = {figure.claim for figure in figures.values()}
    assert {f"S2-{n:02}" for n in (5, 6, 7, 8, 9, 10, 12, 19, 31, 32)} <= claims
    assert {"S0-19", "S3-03", "S3-21", "S3-25"} <= claims
    assert all(figure.doubts and figure.source for figure in figures.values())


def test_what_is_not_from_an_article_has_a_link():
    reports = [figure for figure in published().values() if not figure.claim]
    linked = [figure for figure in reports if figure.url.startswith("https://")]
    assert reports
    assert [f.id for f in reports if f not in linked] == ["p100-rate"]


def test_a_figure_reads_as_one_line():
    assert str(published()["s2-05-gpu"]) == "33 s (S2-05, M1)"


def test_the_table_cannot_be_changed_by_a_chapter():
    with pytest.raises(TypeError):
        published()["s2-05-gpu"] = None


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        ({"value": "fast"}, "value", "number greater than 0"),
        ({"value": "inf"}, "value", "number greater than 0"),
        ({"value": "-3"}, "value", "number greater than 0"),
        ({"unit": "furlong"}, "unit", "one of s, ms"),
        ({"device": "tpu"}, "device", "one of cpu, mps, cuda"),
        ({"doubts": ""}, "doubts", "must not be empty"),
        ({"claim": "", "url": ""}, "url", "must not be empty where there is no claim"),
    ],
)
def test_a_malformed_row_names_file_line_column_and_reason(tmp_path, change, column, reason):
    row = {
        "id": "a", "source": "S0", "claim": "S0-01", "machine": "M1", "device": "mps",
        "what": "w", "value": "1", "unit": "s", "torch": "", "date": "", "url": "", "doubts": "d",
    } | change  # fmt: skip
    path = tmp_path / "published.csv"
    path.write_text(f"{HEAD}\n{','.join(row[key] for key in HEAD.split(','))}\n")
    with pytest.raises(PublishedError) as refused:
        published(path)
    message = str(refused.value)
    assert "published.csv, line 2" in message
    assert column in message
    assert reason in message


def test_one_id_cannot_mean_two_figures(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text(f"{HEAD}\n{FIRST}\n{FIRST}\n")
    with pytest.raises(PublishedError, match=r"line 3: id .* is taken"):
        published(path)


def test_a_missing_or_extra_column_is_refused(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text(f"{HEAD},price\n{FIRST},1\n")
    with pytest.raises(PublishedError, match="columns must be"):
        published(path)
    path.write_text(f"{HEAD}\n{FIRST},1\n")
    with pytest.raises(PublishedError, match="12 columns"):
        published(path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01", "é".encode("latin-1")])
def test_a_file_that_is_no_text_is_named(tmp_path, content):
    path = tmp_path / "published.csv"
    path.write_bytes(content)
    with pytest.raises(PublishedError, match=r"published\.csv: is no table"):
        published(path)


def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text(f"{HEAD}\n{FIRST}\n", encoding="utf-8-sig")
    assert len(published(path)) == 1
