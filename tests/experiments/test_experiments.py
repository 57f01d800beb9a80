"""`weftc reproduce`: every experiment at its tiny size, what it finds, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weftc.cli import main
from weftc.experiments.assignment_learned import problems
from weftc.experiments.catalogue import NAMES, find
from weftc.experiments.papers import stated
from weftc.experiments.reproduce import reproduce
from weftc.experiments.study import BUDGETS, Study
from weftc.experiments.trained_models import FlowTransformer


def measured(name: str, budget: str = "tiny") -> Any:
    """What an experiment measures, as a reader of its file has it."""
    experiment = find(name)
    return json.loads(json.dumps(experiment.measure(Study(), experiment.sizes[budget])))


def holds(name: str, found: Any) -> dict[str, bool | None]:
    return {one.claim: one.holds for one in find(name).judge(found)}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_complete(name: str) -> None:
    experiment, said = find(name), stated(name)
    assert experiment.name == name
    assert set(experiment.sizes) == set(BUDGETS)
    assert said.claims
    assert said.unstated
    assert all(claim.says and claim.quote for claim in said.claims.values())


# ---- what is found ---------------------------------------------------------------------------------------------------


def test_finite_temperature_is_near_with_an_exact_erase_and_not_as_printed() -> None:
    found = measured("kt-fig3")
    assert holds("kt-fig3", found) == {"exact": False, "near-exact-erase": True, "near-as-printed": False}
    exact, printed = (one["rows"][-1]["centers"] for one in found.values())
    assert exact < 1e-3 < 0.1 < printed


def test_trends_of_finite_temperature() -> None:
    told = holds("kt-fig4", measured("kt-fig4"))
    assert all(told[f"trend-{name}"] for name in ("d", "k", "scale", "n-B", "gamma-A"))


def test_rows_of_the_table_are_verified() -> None:
    assert holds("kt-table1", measured("kt-table1")) == dict.fromkeys(("row 1", "row 4", "row 7"), True)


@pytest.mark.slow
def test_every_row_of_the_table_is_verified() -> None:
    told = holds("kt-table1", measured("kt-table1", "small"))
    assert set(told) == set(stated("kt-table1").claims)
    assert all(told.values())


def test_attention_converges_to_the_optimum_for_every_n() -> None:
    found = measured("as-converge")
    assert all(holds("as-converge", found).values())
    for n in (4, 8, 16):
        depths = found[f"n = {n}, gamma = 0.5 lambda (n + 1)"]["depths"]
        assert next(one["error"] for one in depths if one["depth"] == 50) < 1e-9


def test_one_transformer_sorts_lists_of_any_length() -> None:
    assert all(holds("as-sort", measured("as-sort")).values())


def test_bounds_are_above_what_is_measured() -> None:
    told = holds("as-bounds", measured("as-bounds"))
    assert all(told[name] for name in ("E1", "E2", "E3", "depth"))


def test_laws_of_the_single_stream() -> None:
    found = measured("em-laws")
    assert all(holds("em-laws", found).values())
    assert max(one["no activation"] for label, one in found.items() if label.startswith("N=")) < 1e-12


def test_under_the_printed_law_the_task_is_to_copy() -> None:
    _, y, answer, _ = problems(np.random.default_rng(0), 50, 7, "grid")
    assert np.array_equal(y, answer)
    _, y, answer, _ = problems(np.random.default_rng(0), 50, 7, "uniform")
    assert np.mean((y - answer) ** 2) > 0.005


def test_a_compiled_start_beats_random_ones() -> None:
    assert holds("as-train", measured("as-train")) == {"start": True}


def test_a_trained_clustering_gets_better_with_separation_and_stays_below_the_true_means() -> None:
    told = holds("em-train", measured("em-train"))
    assert told["separation"]
    assert told["limit"]


def test_order_of_methods_at_high_signal() -> None:
    assert holds("fl-baselines", measured("fl-baselines"))["order"]


def test_a_flow_transformer_is_the_identity_at_speed_zero() -> None:
    model, x = FlowTransformer(), torch.randn(2, 20, 2)
    with torch.no_grad():
        model.flow.layers = 0  # T = 0
        torch.testing.assert_close(model(x, torch.tensor([3.0, 15.0]), "uniform"), x, atol=1e-5, rtol=0)
    assert holds("fl-train", measured("fl-train"))["total"]


def test_every_schedule_trains_and_is_used() -> None:
    found = measured("fl-schedules")
    assert np.isfinite(list(found.values())).all()
    assert len(found) == 5


def test_entropy_falls() -> None:
    told = holds("fl-entropy", measured("fl-entropy"))
    assert told == {"printed": False, "corrected": True, "figure": True, "energy": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("kt-fig4", ("trend-d", "trend-k", "trend-scale", "trend-n-B", "trend-gamma-A")),
        ("as-train", ("start",)),
        ("em-train", ("separation", "limit")),
        ("fl-baselines", ("order",)),
        ("fl-train", ("low", "total")),
        ("fl-schedules", ("uniform",)),
    ],
)
def test_small_budgets(name: str, claims: tuple[str, ...]) -> None:
    told = holds(name, measured(name, "small"))
    assert {claim: told[claim] for claim in claims} == dict.fromkeys(claims, True)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_a_folder_with_numbers_a_table_a_picture_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "papers"
    assert main(["reproduce", "as-sort", "--budget", "tiny", "-o", str(folder)]) == 0
    assert "as-sort: 2 of 2 claims hold" in capsys.readouterr().out
    result = json.loads((folder / "as-sort" / "result.json").read_text(encoding="utf-8"))
    assert result["command"] == "weftc reproduce as-sort --budget tiny"
    assert "| the paper | ours | holds? |" in (folder / "as-sort" / "table.md").read_text(encoding="utf-8")
    assert (folder / "as-sort" / "figure.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "as-sort" in page
    assert stated("as-sort").unstated[0] in page
    assert main(["reproduce", "as-sort", "--budget", "tiny", "-o", str(folder)]) == 2
    assert "--resume keeps it" in capsys.readouterr().err


def test_resume_keeps_finished_experiments_and_finished_parts(tmp_path: Path) -> None:
    calls: list[str] = []

    def watch(what: str, done: int, total: int | None, /) -> None:
        calls.append(what)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(["as-sort"], tmp_path, "tiny", progress=watch)
    kept = sorted((tmp_path / "as-sort" / "parts" / "tiny").glob("*.json"))
    assert len(kept) == 2
    kept[0].write_text('{"n": 5, "error": 0.5, "increasing": 3, "lists": 3}', encoding="utf-8")
    (made,) = reproduce(["as-sort"], tmp_path, "tiny", resume=True)
    assert 0.5 in [one["error"] for one in made.measured.values()]  # read, not measured again
    (again,) = reproduce(["as-sort"], tmp_path, "tiny", resume=True, progress=watch)
    assert again == made
    assert len(calls) == 3


def test_same_seeds_same_numbers() -> None:
    assert measured("as-sort") == measured("as-sort")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kt-fig5"], "there is no experiment kt-fig5; did you mean"),
        ([], "which experiment?"),
        (["as-sort", "-o", "file"], "is not a folder"),
    ],
)
def test_what_is_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["reproduce", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["experiments"]] == list(NAMES)
