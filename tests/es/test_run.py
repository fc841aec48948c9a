"""Runs: what they do in order, when they stop, and what an interruption leaves."""

import io
import itertools
import sys

import numpy as np
import pytest

from nnflat import es

SPHERE = es.Batch(lambda population, key: np.sum(population**2, axis=1))


def make(**options):
    return es.OpenAIES(np.ones(3), **({"maximize": False, "pop": 8, "sigma": 0.1} | options))


def run(strategy, evaluator=SPHERE, generations=5, **options):
    return es.run(strategy, evaluator, generations=generations, progress=False, **options)


def same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def interrupting(fn, at):
    """Return fn, except that its call number `at` is interrupted after it was made."""
    calls = itertools.count()

    def wrapped(*args, **kwargs):
        result = fn(*args, **kwargs)
        if next(calls) == at:
            raise KeyboardInterrupt
        return result

    return wrapped


def test_a_run_is_ask_evaluate_tell():
    mine, other = make(), make()
    run(mine)
    for _ in range(5):
        other.tell(SPHERE(other.ask(), other.key))
    same_state(mine.state(), other.state())


def test_two_runs_are_one_longer_run():
    mine, other = make(), make()
    run(mine, generations=2)
    run(mine, generations=3)
    run(other, generations=5)
    same_state(mine.state(), other.state())


def test_the_result_says_what_was_done():
    strategy = make()
    result = run(strategy)
    assert (result.generations, result.evaluations, result.stopped_by) == (5, 40, "generations")
    np.testing.assert_array_equal(result.theta, strategy.theta)
    assert result.fitness == np.sum(strategy.theta**2)


def test_the_result_does_not_change_when_the_run_continues():
    strategy = make()
    result = run(strategy)
    before = result.theta.copy()
    run(strategy)
    np.testing.assert_array_equal(result.theta, before)


@pytest.mark.parametrize("maximize", [True, False])
def test_history_holds_best_and_mean_of_each_generation(maximize):
    told = []
    result = run(make(maximize=maximize), callbacks=[lambda record: told.append(record.fitness)])
    best = np.max(told, axis=1) if maximize else np.min(told, axis=1)
    np.testing.assert_array_equal(result.history["best"], best)
    np.testing.assert_allclose(result.history["mean"], np.mean(told, axis=1))
    np.testing.assert_array_equal(result.history["generation"], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(result.history["evaluations"], [8, 16, 24, 32, 40])
    assert np.all(np.diff(result.history["seconds"]) >= 0)


def test_no_generations_give_theta_as_it_is():
    result = run(make(), generations=0)
    assert (result.generations, result.fitness, result.stopped_by) == (0, 3.0, "generations")
    assert all(values.shape == (0,) for values in result.history.values())


def test_best_and_mean_are_of_the_finite_fitnesses():
    fitness = np.array([np.nan, np.inf, -np.inf, 1.0, 2.0, 3.0, 1e308, 1e308])
    result = run(make(maximize=True), lambda population, key: fitness[: len(population)], generations=1)
    assert result.history["best"] == 1e308
    assert np.isfinite(result.history["mean"]).all()


def test_a_generation_without_a_finite_fitness_is_a_gap_in_the_history():
    result = run(make(), lambda population, key: np.full(len(population), np.nan), generations=2)
    assert np.isnan(result.history["best"]).all()


def test_callbacks_see_this_generation_read_only_after_it_was_told():
    seen = []

    def callback(record):
        seen.append((record.generation, record.strategy.generation))
        with pytest.raises(ValueError, match="read-only"):
            record.fitness[0] = 0

    run(make(), callbacks=[callback])
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


# stopping


def test_solved_stops_once_theta_itself_has_the_value():
    result = run(make(), generations=500, stop=[es.Solved(0.05)])
    assert result.stopped_by == "Solved"
    assert result.fitness <= 0.05
    assert result.generations < 500


def test_a_lucky_candidate_does_not_solve():
    def lucky(population, key):
        return np.where(np.arange(len(population)) == 3, 1000.0, 0.0)

    assert run(make(maximize=True), lucky, stop=[es.Solved(500)]).stopped_by == "generations"


def test_solved_plays_a_hundred_fresh_episodes_once_a_generation():
    class Game:
        def __init__(self):
            self.played = []

        def __call__(self, population, key):
            return np.arange(len(population))

        def evaluate(self, theta, episodes, key):
            self.played.append((episodes, int(key)))
            return np.arange(episodes)

    game = Game()
    result = run(make(maximize=True), game, generations=3, stop=[es.Solved(7)])
    assert (result.stopped_by, result.fitness, result.generations) == ("Solved", 49.5, 1)
    result = run(make(maximize=True), game, generations=3, stop=[es.Solved(8)])
    assert result.generations == 3
    assert [episodes for episodes, _ in game.played] == [100, 100]


def test_max_evaluations_stops_after_the_generation_that_reaches_it():
    result = run(make(), stop=[es.MaxEvaluations(17)])
    assert (result.stopped_by, result.evaluations) == ("MaxEvaluations", 24)


def test_max_seconds_stops_after_the_generation_in_which_they_have_gone_by():
    result = run(make(), stop=[es.MaxSeconds(0.0)])
    assert (result.stopped_by, result.generations) == ("MaxSeconds", 1)


def test_the_first_rule_that_says_so_is_named_and_any_function_is_a_rule():
    def enough(record):
        return record.generation == 2

    result = run(make(), stop=[es.MaxEvaluations(1000), enough])
    assert (result.stopped_by, result.generations) == ("enough", 2)


def test_stagnation_stops_when_the_bests_get_no_better():
    fitness = iter([5.0, 4.0, 6.0, 4.0, 7.0, 1.0])
    result = run(make(), lambda population, key: np.full(len(population), next(fitness)), 6, stop=[es.Stagnation(3)])
    assert (result.stopped_by, result.generations) == ("Stagnation", 5)


@pytest.mark.parametrize("maximize", [True, False])
def test_stagnation_goes_on_while_there_is_progress(maximize):
    steps = iter(range(20))

    def better(population, key):
        return np.full(len(population), float(next(steps)) * (1 if maximize else -1))

    assert run(make(maximize=maximize), better, 10, stop=[es.Stagnation(1)]).stopped_by == "generations"


# checkpoints


KINDS = [es.OpenAIES, es.ARS, es.PGPE, es.SNES, es.XNES, es.SepCMA, es.LMMAES, es.CRFMNES, es.GA, es.PyCMA]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_resumed_run_is_the_whole_run_to_the_bit(kind, suffix, tmp_path):
    if kind is es.PyCMA:
        pytest.importorskip("cma")

    def new():
        return kind(np.linspace(0, 1, 5), maximize=False, pop=8, sigma=0.2, seed=3)

    path = tmp_path / f"run.{suffix}"
    whole, part, rest = new(), new(), new()
    expected = run(whole, generations=7)
    run(part, generations=4, checkpoint=path)
    result = run(rest, generations=7, checkpoint=path, resume=True)
    same_state(rest.state(), whole.state())
    for name in expected.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(result.history[name], expected.history[name], err_msg=name)
    assert (result.generations, result.evaluations) == (7, 56)
    assert np.all(np.diff(result.history["seconds"]) >= 0)


@pytest.mark.parametrize("at", range(1, 7))
def test_every_point_of_a_run_can_be_resumed_from(at, tmp_path):
    whole, rest = make(), make()
    run(whole, generations=7)
    run(make(), generations=at, checkpoint=tmp_path / "run.npz")
    run(rest, generations=7, checkpoint=tmp_path / "run.npz", resume=True)
    same_state(rest.state(), whole.state())


def test_restarts_resume_to_the_bit(tmp_path):
    def new():
        return es.restarts(lambda factor, seed: make(pop=4 * factor, seed=seed, sigma=1e-3))

    def flat(population, key):
        return np.zeros(len(population))

    whole, rest = new(), new()
    run(whole, flat, generations=60)
    run(new(), flat, generations=45, checkpoint=tmp_path / "run.npz")
    run(rest, flat, generations=60, checkpoint=tmp_path / "run.npz", resume=True)
    assert whole.attempt >= 1
    same_state(rest.state(), whole.state())


def test_checkpoints_come_every_so_many_generations_and_at_the_end(tmp_path):
    import nnflat as nf

    path, seen = tmp_path / "run.npz", []

    def look(record):
        seen.append(nf.load(path)["strategy"]["generation"] if path.exists() else None)

    run(make(), generations=5, checkpoint=path, every=2, callbacks=[look])
    assert [None if value is None else int(value) for value in seen] == [None, None, 2, 2, 4]
    assert int(nf.load(path)["strategy"]["generation"]) == 5


def test_a_checkpoint_may_be_due_by_time(tmp_path):
    from datetime import timedelta

    seen = []
    look = [lambda record: seen.append((tmp_path / "run.npz").exists())]
    run(make(), generations=2, checkpoint=tmp_path / "run.npz", every=timedelta(microseconds=1), callbacks=look)
    assert seen == [False, True]


@pytest.mark.parametrize("every", [0, -3])
def test_every_must_be_positive(every):
    with pytest.raises(ValueError, match="every"):
        run(make(), every=every)


def test_an_interrupted_and_a_failed_run_are_saved_and_resumed(tmp_path):
    path, whole = tmp_path / "run.npz", make()
    run(whole, generations=6)
    run(make(), interrupting(SPHERE, at=2), generations=6, checkpoint=path)
    failing = itertools.count()

    def fails_at_last(population, key):
        if next(failing) == 2:
            raise ZeroDivisionError
        return SPHERE(population, key)

    with pytest.raises(ZeroDivisionError):
        run(make(), fails_at_last, generations=6, checkpoint=path, resume=True)
    rest = make()
    run(rest, generations=6, checkpoint=path, resume=True)
    same_state(rest.state(), whole.state())


def test_without_a_file_there_is_nothing_to_resume(tmp_path):
    assert run(make(), checkpoint=tmp_path / "run.npz", resume=True).generations == 5


@pytest.mark.parametrize(
    ("other", "options", "word"),
    [
        (lambda: make(maximize=True), {}, "maximize"),
        (lambda: es.SNES(np.ones(3), maximize=False, pop=8, sigma=0.1), {}, "strategy"),
        (lambda: es.OpenAIES(np.ones(4), maximize=False, pop=8, sigma=0.1), {}, "size"),
        (make, {"chunk": 2}, "chunk is 16 in the checkpoint, 2 in this run"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other, options, word, tmp_path):
    run(make(), checkpoint=tmp_path / "run.npz")
    with pytest.raises(ValueError, match=word):
        run(other(), checkpoint=tmp_path / "run.npz", resume=True, **options)


def test_the_evaluator_is_part_of_the_checkpoint(tmp_path):
    class Counting:
        steps = 0

        def measure(self, population, key):
            return SPHERE(population, key) + self.steps % 3, {"steps": np.array(len(population))}

        def absorb(self, report):
            self.steps += int(report["steps"])

        def __call__(self, population, key):
            return self.measure(population, key)[0]

        def state(self):
            return {"steps": np.array(self.steps)}

        def restore(self, state):
            self.steps = int(state["steps"])

    whole, rest = make(), make()
    expected = run(whole, Counting(), generations=6)
    run(make(), Counting(), generations=3, checkpoint=tmp_path / "run.npz")
    result = run(rest, Counting(), generations=6, checkpoint=tmp_path / "run.npz", resume=True)
    same_state(rest.state(), whole.state())
    np.testing.assert_array_equal(result.history["steps"], expected.history["steps"])


def test_sigterm_ends_a_run_as_ctrl_c_does(tmp_path):
    import os
    import signal

    before = signal.getsignal(signal.SIGTERM)
    calls = itertools.count()

    def told_to_stop(population, key):
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return SPHERE(population, key)

    result = run(make(), told_to_stop, checkpoint=tmp_path / "run.npz")
    assert (result.stopped_by, result.generations) == ("interrupted", 2)
    assert signal.getsignal(signal.SIGTERM) == before


# logs


def test_the_log_has_a_line_a_generation_and_no_nan(tmp_path):
    import json

    path = tmp_path / "log.jsonl"

    def sometimes(population, key):
        return SPHERE(population, key) * (np.nan if len(path.read_bytes().splitlines()) == 1 else 1)

    path.touch()
    run(make(), sometimes, generations=3, callbacks=[es.JsonLines(path)])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["generation"] for row in rows] == [1, 2, 3]
    assert "best" in rows[0]
    assert "best" not in rows[1]
    assert {"mean", "std", "sigma", "evaluations", "seconds"} <= rows[2].keys()


def test_the_log_of_a_resumed_run_has_each_generation_once(tmp_path):
    import json

    path, log = tmp_path / "run.npz", tmp_path / "log.jsonl"
    run(make(), generations=3, checkpoint=path, callbacks=[es.JsonLines(log)])
    log.write_text(log.read_text() + '{"generation": 4, "best": 0}\n{"gener')
    run(make(), generations=5, checkpoint=path, resume=True, callbacks=[es.JsonLines(log)])
    assert [json.loads(line)["generation"] for line in log.read_text().splitlines()] == [1, 2, 3, 4, 5]


def test_tensorboard_without_a_writer_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        es.TensorBoard(tmp_path)


# interruption


def test_an_interrupted_evaluation_ends_the_run_after_the_last_whole_generation():
    strategy, other = make(), make()
    result = run(strategy, interrupting(SPHERE, at=3))
    assert (result.stopped_by, result.generations) == ("interrupted", 3)
    run(other, generations=3)
    same_state(strategy.state(), other.state())
    np.testing.assert_array_equal(result.theta, other.theta)


def test_an_interrupted_update_is_undone(monkeypatch):
    strategy, other = make(), make()
    monkeypatch.setattr(strategy, "update", interrupting(strategy.update, at=2))
    assert run(strategy).generations == 2
    run(other, generations=2)
    same_state(strategy.state(), other.state())
    run(strategy, generations=3)
    run(other, generations=3)
    same_state(strategy.state(), other.state())


def test_an_interrupted_callback_keeps_its_generation():
    strategy, other = make(), make()
    result = run(strategy, callbacks=[interrupting(lambda record: None, at=1)])
    assert (result.stopped_by, result.generations, strategy.generation) == ("interrupted", 2, 2)
    run(other, generations=2)
    same_state(strategy.state(), other.state())


class Game:
    """Plays episodes of return 1, and counts how often it was asked to."""

    asked = 0

    def __call__(self, population, key):
        return np.ones(len(population))

    def evaluate(self, theta, episodes, key):
        self.asked += 1
        return np.ones(episodes)


@pytest.mark.parametrize("generations", [0, 2])
def test_an_interrupted_last_evaluation_is_made_again(generations, monkeypatch):
    game = Game()
    monkeypatch.setattr(game, "evaluate", interrupting(game.evaluate, at=0))
    result = run(make(), game, generations=generations)
    assert (result.stopped_by, result.fitness, result.generations) == ("interrupted", 1.0, generations)
    assert game.asked == 2


def test_other_errors_come_through():
    with pytest.raises(ZeroDivisionError):
        run(make(), lambda population, key: 1 / 0)


# progress


def test_without_a_terminal_progress_is_plain_lines_on_stderr(capsys):
    es.run(make(), SPHERE, generations=3)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith("generation 1/3  best ")
    assert captured.err.splitlines()[-1].startswith("generation 3/3  best ")
    assert "\x1b" not in captured.err
    for word in ("mean", "evaluations/s", "left"):
        assert word in captured.err


def test_progress_can_be_silent(capsys):
    run(make())
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_progress_is_one_live_line(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    es.run(make(), SPHERE, generations=3)
    assert "generation 3/3" in sys.stderr.getvalue()
    assert "\x1b" in sys.stderr.getvalue()


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys, "stderr", Terminal())
    es.run(make(), SPHERE, generations=3)
    assert "\x1b" not in sys.stderr.getvalue()
    assert "generation 3/3" in sys.stderr.getvalue()
