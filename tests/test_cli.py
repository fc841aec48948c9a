"""The command line, called in the process, and once as a process of its own for Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

import nnflat as nf
from nnflat import bench, es, nn
from nnflat.cli import main

pytest.importorskip("gymnasium")
pytest.importorskip("matplotlib")

QUICK = ["--generations", "2", "--pop", "4", "--hidden", "8", "--quiet"]


def evolve(folder, *options, env="CartPole-v1"):
    return main(["evolve", env, "--out", str(folder), *QUICK, *options])


# ---- evolve


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("solved")
    assert main(["evolve", "CartPole-v1", "--out", str(folder), "--quiet"]) == 0
    return folder


def test_evolve_solves_cartpole_and_remembers_it(solved):
    meta = nf.files.info(solved / "CartPole-v1.safetensors").meta
    assert (meta["environment"], meta["stopped_by"]) == ("CartPole-v1", "Solved")
    assert meta["fitness"] >= 475


def test_the_evolved_policy_plays_as_well_as_it_says(solved):
    policy = nf.load(solved / "CartPole-v1.safetensors")
    theta, layout = nf.destructure(policy)
    returns = es.Gym("CartPole-v1", policy, layout).evaluate(theta, 100, np.uint64(12345))
    assert returns.mean() >= 450


def test_evolve_writes_a_png(solved):
    assert (solved / "CartPole-v1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_evolve_runs_discrete_and_continuous_actions(env, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nnflat.es.record.EPISODES", 2)
    assert evolve(tmp_path, "--generations", "1", "--pop", "2", env=env) == 0
    assert sorted(os.listdir(tmp_path)) == [f"{env}.png", f"{env}.safetensors"]
    out, err = capsys.readouterr()
    assert err == ""
    assert all(str(tmp_path / f"{env}.{suffix}") in out for suffix in ("png", "safetensors"))


def test_evolve_prints_one_json_object(tmp_path, capsys):
    assert evolve(tmp_path, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["generations"], report["evaluations"], report["hidden"]) == (2, 8, [8])
    assert report["policy"] == str(tmp_path / "CartPole-v1.safetensors")


def test_evolve_shows_progress_on_stderr(tmp_path, capsys):
    main(["evolve", "CartPole-v1", "--out", str(tmp_path), *QUICK[:-1]])
    err = capsys.readouterr().err
    assert all(word in err for word in ("generation", "best", "mean", "steps/s", "left"))


def test_the_seed_decides_the_bits(tmp_path):
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        evolve(tmp_path / folder, "--seed", seed)
    a, b, c = (nf.destructure(nf.load(tmp_path / f / "CartPole-v1.safetensors"))[0] for f in "abc")
    assert a.tobytes() == b.tobytes()
    assert a.tobytes() != c.tobytes()


@pytest.mark.parametrize(("hidden", "layers"), [("", 1), ("8", 2), ("8,4", 3)])
def test_hidden_gives_the_sizes_of_the_layers(hidden, layers, tmp_path):
    assert evolve(tmp_path, "--hidden", hidden) == 0
    assert len(nf.load(tmp_path / "CartPole-v1.safetensors").layers) == layers


def test_the_folder_is_made_if_it_is_missing(tmp_path):
    assert evolve(tmp_path / "new" / "folder") == 0
    assert (tmp_path / "new" / "folder" / "CartPole-v1.png").exists()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPool-v1", "no environment 'CartPool-v1'; did you mean CartPole-v1"),
        ("Blackjack-v1", "Blackjack-v1 has observations"),
        ("FrozenLake-v1", "FrozenLake-v1 has observations"),
    ],
)
def test_an_environment_that_does_not_fit_is_one_sentence_and_exit_2(env, message, tmp_path, capsys):
    assert evolve(tmp_path, env=env) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nnflat: ")
    assert message in err
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_an_unsupported_action_space_is_one_sentence_and_exit_2(tmp_path, capsys):
    import gymnasium

    class Many(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.MultiBinary(2)

    gymnasium.register("nnflat/Many-v0", entry_point=Many)
    try:
        assert evolve(tmp_path, env="nnflat/Many-v0") == 2
    finally:
        del gymnasium.registry["nnflat/Many-v0"]
    assert "has actions MultiBinary" in capsys.readouterr().err


def test_an_unwritable_folder_is_one_sentence_before_anything_is_evolved(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(es, "run", None)
    (tmp_path / "file").touch()
    assert evolve(tmp_path / "file" / "folder") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"nnflat: cannot write into {tmp_path / 'file' / 'folder'}: ")
    assert err.count("\n") == 1


def test_a_missing_matplotlib_is_one_sentence_before_anything_is_evolved(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(es, "run", None)
    monkeypatch.setattr("nnflat.cli.find_spec", lambda name: None)
    assert evolve(tmp_path) == 2
    assert "pip install 'nnflat[demo]'" in capsys.readouterr().err


def test_debug_shows_the_traceback(tmp_path, capsys):
    assert evolve(tmp_path, "--debug", env="CartPool-v1") == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["evolve"],
        ["dance"],
        ["evolve", "CartPole-v1", "--pop", "0"],
        ["evolve", "CartPole-v1", "--generations", "x"],
        ["evolve", "CartPole-v1", "--hidden", "8,-1"],
        ["evolve", "CartPole-v1", "--sigma", "-1"],
        ["evolve", "CartPole-v1", "--lr", "nan"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_exit_2(options, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert "nnflat" in capsys.readouterr().err


def test_ctrl_c_saves_what_there_is_and_exits_130(tmp_path, capsys, monkeypatch):
    call, calls = es.Gym.measure, []

    def interrupt_the_third(self, population, key):
        calls.append(key)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return call(self, population, key)

    monkeypatch.setattr(es.Gym, "measure", interrupt_the_third)
    assert evolve(tmp_path, "--generations", "50") == 130
    assert "interrupted after 2 generations" in capsys.readouterr().out
    assert nf.files.info(tmp_path / "CartPole-v1.safetensors").meta["generations"] == 2
    assert (tmp_path / "CartPole-v1.png").exists()


def test_ctrl_c_before_the_first_generation_saves_the_start(tmp_path, monkeypatch):
    def interrupt(self, population, key):
        raise KeyboardInterrupt

    monkeypatch.setattr(es.Gym, "measure", interrupt)
    assert evolve(tmp_path) == 130
    assert sorted(os.listdir(tmp_path)) == ["CartPole-v1.png", "CartPole-v1.safetensors"]


def test_a_second_ctrl_c_saves_the_policy_and_exits_130_too(tmp_path, capsys, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(es, "run", interrupt)
    assert evolve(tmp_path) == 130
    assert capsys.readouterr().err == "nnflat: interrupted\n"
    assert nf.files.info(tmp_path / "CartPole-v1.safetensors").meta["environment"] == "CartPole-v1"


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_a_process_that_gets_sigint_saves_and_exits_130(tmp_path):
    command = [sys.executable, "-m", "nnflat", "evolve", "CartPole-v1", "--out", str(tmp_path)]
    command += ["--generations", "1000000", "--sigma", "1e-9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "generation" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted after" in out
    assert sorted(os.listdir(tmp_path)) == ["CartPole-v1.png", "CartPole-v1.safetensors"]


# ---- evolve: resume, workers, log


def theta_of(folder):
    return nf.destructure(nf.load(folder / "CartPole-v1.safetensors"))[0]


def test_a_resumed_command_gives_the_bits_of_the_whole(tmp_path):
    evolve(tmp_path / "whole", "--generations", "4")
    for generations in ("2", "4"):
        evolve(tmp_path / "parts", "--generations", generations, "--resume", str(tmp_path / "run.npz"))
    assert theta_of(tmp_path / "whole").tobytes() == theta_of(tmp_path / "parts").tobytes()
    assert nf.files.info(tmp_path / "parts" / "CartPole-v1.safetensors").meta["generations"] == 4


def test_workers_give_the_bits_of_one_process(tmp_path):
    evolve(tmp_path / "here", "--chunk", "2")
    evolve(tmp_path / "there", "--chunk", "2", "--workers", "2")
    assert theta_of(tmp_path / "here").tobytes() == theta_of(tmp_path / "there").tobytes()


@contextmanager
def started(*command):
    """Run a module of Python as a process; kill it in the end."""
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-m", *map(str, command)], **silent) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.05)


@contextmanager
def dask_scheduler(folder):
    """Start a real scheduler on the loopback; give the file that says where it is."""
    pytest.importorskip("distributed")
    file = folder / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    with started("distributed.cli.dask_scheduler", *options):
        wait_for(file)
        yield file


def address_in(file):
    return json.loads(file.read_text())["address"]


def test_a_real_dask_cluster_gives_the_bits_of_one_process(tmp_path):
    with dask_scheduler(tmp_path) as file:
        options = ["--scheduler-file", file, "--no-dashboard", "--no-nanny", "--nthreads", "1"]
        with started("distributed.cli.dask_worker", *options, "--local-directory", tmp_path):
            command = [sys.executable, "-m", "nnflat", "evolve", "CartPole-v1", *QUICK, "--chunk", "2"]
            command += ["--dask", address_in(file), "--out", str(tmp_path / "there")]
            subprocess.run(command, check=True, timeout=120, capture_output=True)
    evolve(tmp_path / "here", "--chunk", "2")
    assert theta_of(tmp_path / "here").tobytes() == theta_of(tmp_path / "there").tobytes()


@pytest.mark.slow
def test_a_dask_scheduler_without_workers_is_one_sentence(tmp_path):
    with dask_scheduler(tmp_path) as file:
        script = "import nnflat.es.executors as e; e.PATIENCE = 3; from nnflat.cli import main; import sys; "
        script += "sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", script, "evolve", "CartPole-v1", *QUICK, "--dask", address_in(file)]
        command += ["--out", str(tmp_path)]
        done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no worker has joined the Dask scheduler" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_address_without_a_dask_scheduler_is_one_sentence(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("nnflat.es.executors.PATIENCE", 1)
    assert evolve(tmp_path, "--dask", "127.0.0.1:1") == 2
    assert "no Dask scheduler answers at 127.0.0.1:1" in capsys.readouterr().err


def test_workers_and_dask_together_are_refused(tmp_path, capsys):
    assert evolve(tmp_path, "--workers", "2", "--dask", "127.0.0.1:1") == 2
    assert "give one" in capsys.readouterr().err


def test_log_writes_a_line_a_generation(tmp_path):
    evolve(tmp_path, "--log", str(tmp_path / "log.jsonl"))
    assert [json.loads(line)["generation"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [1, 2]


# ---- play


def test_play_prints_the_mean_return(solved, capsys):
    assert main(["play", str(solved / "CartPole-v1.safetensors"), "--episodes", "3"]) == 0
    mean = float(capsys.readouterr().out.split("mean return ")[1].split()[0])
    assert mean > 300


def test_play_prints_one_json_object(solved, capsys):
    assert main(["play", str(solved / "CartPole-v1.safetensors"), "--episodes", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["environment"], len(report["returns"])) == ("CartPole-v1", 2)


def test_play_writes_an_animation(tmp_path, capsys):
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    evolve(tmp_path)
    assert main(["play", str(tmp_path / "CartPole-v1.safetensors"), "--render", str(tmp_path / "out.gif")]) == 0
    with image.open(tmp_path / "out.gif") as picture:
        assert picture.n_frames > 3
    assert "pictures" in capsys.readouterr().out


def test_a_file_that_is_no_policy_cannot_play(tied, capsys):
    assert main(["play", str(tied)]) == 2
    assert "does not say its environment" in capsys.readouterr().err


# ---- info


@pytest.fixture
def tied(tmp_path):
    weight = np.ones((2, 3), np.float32)
    nf.save(tmp_path / "a.safetensors", {"a": weight, "b": weight.T}, meta={"fitness": 3.5, "by": "hand"})
    return tmp_path / "a.safetensors"


def test_info_prints_the_arrays_the_ties_the_total_and_the_meta(tied, capsys):
    assert main(["info", str(tied)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [f"{tied}:", "safetensors,", "by", "nnflat", nf.__version__]
    assert lines[1] == ["path", "shape", "dtype", "byte"]
    assert lines[2][:4] == ["a", "(2,", "3)", "F32"]
    assert lines[3:] == [
        ["total", "6"],
        ["b", "is", "a,", "axes", "[1,", "0]"],
        ["dict(a:", "array,", "b:", "array)"],
        ["fitness", "3.5"],
        ["by", "hand"],
    ]


def test_info_prints_one_json_object(tied, capsys):
    assert main(["info", "--json", str(tied)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["total"], found["meta"]["fitness"]) == ("safetensors", 6, 3.5)
    assert [array["path"] for array in found["arrays"]] == ["a"]


def test_info_prints_files_of_other_programs(tmp_path, capsys):
    from safetensors.numpy import save_file

    save_file({"w": np.ones(3)}, tmp_path / "a.safetensors", metadata={"format": "np"})
    assert main(["info", str(tmp_path / "a.safetensors")]) == 0
    out = capsys.readouterr().out
    assert "nnflat" not in out.replace(str(tmp_path), "")
    assert all(word in out for word in ("w", "(3,)", "F64", "format  np"))


def test_info_sends_no_control_characters_to_the_terminal(tmp_path, capsys):
    from safetensors.numpy import save_file

    save_file({"\x1b[2J": np.ones(3)}, tmp_path / "a.safetensors", metadata={"a\nb": "\x1b[31m"})
    assert main(["info", str(tmp_path / "a.safetensors")]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_info_prints_an_npz(tmp_path, capsys):
    nf.save(tmp_path / "a.npz", nn.Chain(nn.Dense(2, 3)))
    assert main(["info", str(tmp_path / "a.npz")]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("npz", "layers[0].weight", "(2, 3)", "float32"))


@pytest.mark.parametrize("name", ["nowhere.npz", "a.txt", "broken.safetensors"])
def test_info_of_what_is_no_file_is_one_sentence_and_exit_2(name, tmp_path, capsys):
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    assert main(["info", str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("nnflat: ")
    assert name in err
    assert err.count("\n") == 1


# ---- bench


@pytest.fixture
def small_bench(monkeypatch):
    monkeypatch.setattr(bench, "models", lambda rng: {"small": [np.ones(4, np.float32)]})
    monkeypatch.setattr(bench, "measure", partial(bench.measure, rounds=1, slot=10_000))


def test_bench_prints_the_machine_and_the_table(small_bench, capsys):
    assert main(["bench"]) == 0
    out, err = capsys.readouterr()
    assert all(word in out for word in ("cpu: ", "numpy: ", "min us", "restructure(out=)", "mean ratio"))
    assert err == "measuring small\n"


def test_bench_prints_one_json_object(small_bench, capsys):
    assert main(["bench", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["baseline"], len(found["rows"]), err) == ("np.copyto", 8, "")
    assert {"min_us", "mean_us", "blocks", "bytes", "min_ratio", "mean_ratio"} <= found["rows"][0].keys()
