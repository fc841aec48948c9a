"""The command line: `nnflat evolve ENV | play FILE | train DATA | info FILE | bench | dashboard`.

Results go to stdout, progress and errors to stderr. Exit codes: 0, all went well; 2, one sentence says what
was wrong; 130, interrupted by Ctrl-C, with what there was saved.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np

from nnflat import files, tree
from nnflat._table import aligned
from nnflat.layout import destructure

OK, WRONG, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    >>> main(["info", "nowhere.npz"])
    2
    """
    options = _parser().parse_args(argv)
    try:
        return options.command(options)
    except KeyboardInterrupt:
        print("nnflat: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, ImportError, OSError) as error:
        if options.debug:
            traceback.print_exc()
        print(f"nnflat: {_sentence(error)}", file=sys.stderr)
        return WRONG


def _sentence(error: Exception) -> str:
    told = isinstance(error, OSError) and error.filename is not None
    text = f"{error.filename}: {error.strerror}" if told else str(error)  # type: ignore[attr-defined]
    return " ".join(text.split())


# ---- arguments ---------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--seed", type=int, default=0, help="of all that is random (default: 0)")
    common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    common.add_argument("--quiet", action="store_true", help="show no progress")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")

    parser = argparse.ArgumentParser(prog="nnflat", description="Small neural networks as one flat vector.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_evolve(commands, common)
    _add_play(commands, common)
    _add_train(commands, common)
    info = commands.add_parser("info", parents=[common], help="print what is in a file")
    info.add_argument("file", metavar="FILE", help="a .safetensors or .npz file")
    info.set_defaults(command=_info)
    bench = commands.add_parser("bench", parents=[common], help="time the ways between tree and flat vector")
    bench.set_defaults(command=_bench)
    _add_dashboard(commands, common)
    return parser


def _add_evolve(commands: Any, common: argparse.ArgumentParser) -> None:
    from nnflat.es import defaults

    evolve = commands.add_parser("evolve", parents=[common], help="evolve a policy in an environment")
    evolve.set_defaults(command=_evolve)
    evolve.add_argument("env", metavar="ENV", help="the id of an environment, such as CartPole-v1")
    for option, kind, default, text in (
        ("--generations", _count, 200, "at most so many"),
        ("--pop", _count, defaults.POP, "candidates a generation"),
        ("--sigma", _positive, defaults.SIGMA, "standard deviation of the noise"),
        ("--lr", _positive, defaults.LR, "learning rate of Adam"),
        ("--hidden", _sizes, ",".join(map(str, defaults.HIDDEN)), "sizes of hidden layers, commas between"),
        ("--chunk", _count, defaults.CHUNK, "candidates that one call, so one worker, evaluates"),
        ("--out", str, ".", "the folder in which policy and reward curve are written"),
    ):
        evolve.add_argument(option, type=kind, default=default, help=f"{text} (default: %(default)s)")
    evolve.add_argument(
        "--resume", metavar="FILE", help="go on from this .safetensors or .npz, if it exists, and save to it"
    )
    evolve.add_argument(
        "--workers",
        type=_count,
        help="evaluate in so many processes (default: in this one); a worker takes a chunk at a time, so a chunk as "
        "large as the population leaves the others idle: give --chunk at most the population over the workers",
    )
    evolve.add_argument("--dask", metavar="ADDRESS", help="evaluate on the Dask cluster of this scheduler:port")
    evolve.add_argument("--log", metavar="FILE", help="write a JSON object a generation, a line each")


def _add_play(commands: Any, common: argparse.ArgumentParser) -> None:
    play = commands.add_parser("play", parents=[common], help="play an evolved policy, or draw it playing")
    play.set_defaults(command=_play)
    play.add_argument("file", metavar="FILE", help="a policy that `nnflat evolve` has written")
    play.add_argument("--episodes", type=_count, default=1, help="how many to play (default: %(default)s)")
    play.add_argument("--render", metavar="GIF", help="write an animation of them")


def _add_train(commands: Any, common: argparse.ArgumentParser) -> None:
    train = commands.add_parser("train", parents=[common], help="train a network on a table")
    train.set_defaults(command=_train)
    train.add_argument("data", metavar="DATA", help="digits, breast_cancer, diabetes, or a .csv file")
    train.add_argument("--target", help="the column of a CSV file to predict, by name or number (default: the last)")
    for option, kind, default, text in (
        ("--epochs", _count, 200, "at most so many"),
        ("--patience", _count, 30, "stop after so many epochs without a better validation loss"),
        ("--batch-size", _count, 32, "examples a step"),
        ("--lr", _positive, 1e-3, "learning rate of AdamW"),
        ("--decay", _positive, 0.5, "weight decay of AdamW"),
        ("--hidden", _sizes, "256", "sizes of hidden layers, commas between"),
        ("--out", str, ".", "the folder in which model and learning curve are written"),
    ):
        train.add_argument(option, type=kind, default=default, help=f"{text} (default: %(default)s)")


def _add_dashboard(commands: Any, common: argparse.ArgumentParser) -> None:
    dashboard = commands.add_parser("dashboard", parents=[common], help="serve what was measured, commit by commit")
    dashboard.set_defaults(command=_dashboard)
    dashboard.add_argument("--run", action="store_true", help="first measure the checked-out commit")
    dashboard.add_argument("--quick", action="store_true", help="measure each call for a fifth of the time")
    dashboard.add_argument("--no-serve", action="store_true", help="make the page and end")
    dashboard.add_argument("--port", type=_count, default=8080, help="on 127.0.0.1 (default: %(default)s)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed, not {text!r}")
    return int(text)


def _positive(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"a number above 0 is needed, not {text!r}")
    return float(text)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_count(size) for size in text.split(",")) if text else ()


# ---- evolve ------------------------------------------------------------------------------------------------


def _evolve(options: argparse.Namespace) -> int:
    """Evolve a policy, then write it and its reward curve; interrupted, write what there is."""
    from nnflat import es, optim
    from nnflat.es.executors import open_executor
    from nnflat.es.lanes import reward_threshold

    rng = np.random.default_rng(options.seed)
    policy = es.policy_for(options.env, hidden=options.hidden, rng=rng)
    flat, layout = destructure(policy)
    gym = es.Gym(options.env, policy, layout)
    strategy = es.OpenAIES(
        flat,
        maximize=True,
        pop=options.pop,
        sigma=options.sigma,
        optimizer=optim.Adam(options.lr),
        seed=options.seed,
    )
    policy_path, curve_path = _places(options.out, options.env.rpartition(":")[2].replace("/", "-"))
    threshold = reward_threshold(options.env)
    stop = [] if threshold is None else [es.Solved(threshold)]
    callbacks = [es.JsonLines(options.log)] if options.log else []
    try:
        with open_executor(workers=options.workers, dask=options.dask) as executor:
            result = es.run(
                strategy,
                gym,
                generations=options.generations,
                executor=executor,
                chunk=options.chunk,
                stop=stop,
                callbacks=callbacks,
                checkpoint=options.resume,
                resume=options.resume is not None,
                progress=not options.quiet,
            )
    except KeyboardInterrupt:  # a second one, while theta was evaluated
        files.save(policy_path, layout.restructure(strategy.theta), meta=_settings(options))
        raise
    gym.close()
    report = _settings(options) | {
        "fitness": result.fitness,
        "threshold": threshold,
        "stopped_by": result.stopped_by,
        "generations": result.generations,
        "evaluations": result.evaluations,
        "steps": gym.steps,
    }
    files.save(policy_path, layout.restructure(result.theta), meta=report)
    result.plot(curve_path)
    _print_report(report | {"policy": policy_path, "curve": curve_path}, as_json=options.json)
    return INTERRUPTED if result.stopped_by == "interrupted" else OK


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("seed", "pop", "sigma", "lr", "hidden")
    return {"environment": options.env} | {name: getattr(options, name) for name in names}


def _places(folder: str, name: str) -> tuple[str, str]:
    """Return where a model and its curve go, once it is sure that they can be written."""
    if find_spec("matplotlib") is None:
        raise ImportError("the curve needs matplotlib: pip install 'nnflat[demo]'")
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"cannot write into {folder}: {error.strerror}") from error
    stem = os.path.join(folder, name)
    return f"{stem}.safetensors", f"{stem}.png"


def _print_report(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    threshold = report["threshold"]
    solved = threshold is not None and report["fitness"] >= threshold
    goal = "" if threshold is None else f" ({'solved' if solved else 'not solved'}: {threshold:g} is needed)"
    print(f"{report['environment']}: mean return {report['fitness']:.2f} over 100 fresh episodes{goal}")
    print(
        f"{_end(report)} after {report['generations']:,} generations, {report['evaluations']:,} evaluations, "
        f"{report['steps']:,} steps"
    )
    print(f"wrote {report['policy']} and {report['curve']}")


def _end(report: dict[str, Any]) -> str:
    rule = report["stopped_by"]
    plain = {"generations": "stopped", "epochs": "stopped", "interrupted": "interrupted"}
    return plain.get(rule, f"stopped by {rule}")


# ---- play --------------------------------------------------------------------------------------------------


def _play(options: argparse.Namespace) -> int:
    """Play a policy in the environment that it was evolved in."""
    from nnflat.es.play import play, write_gif

    env_id = files.info(options.file).meta.get("environment")
    if not isinstance(env_id, str):
        raise ValueError(f"{options.file} does not say its environment; `nnflat evolve` writes policies that do")
    render = options.render is not None
    policy = files.load(options.file)
    returns, pictures = play(env_id, policy, episodes=options.episodes, seed=options.seed, render=render)
    if render:
        write_gif(options.render, pictures)
    report = {"environment": env_id, "returns": returns.tolist(), "mean": float(returns.mean())}
    if options.json:
        print(json.dumps(report | ({"render": options.render} if render else {})))
        return OK
    print(f"{env_id}: mean return {report['mean']:.2f} over {options.episodes} episode{'s' * (options.episodes > 1)}")
    if render:
        print(f"wrote {options.render}, {len(pictures)} pictures")
    return OK


# ---- train -------------------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> int:
    """Train a network on a table, then write it and its learning curve; interrupted, write what there is."""
    from nnflat import optim, tabular
    from nnflat.train import fit

    table = tabular.load_table(options.data, options.target)
    model_path, curve_path = _places(options.out, table.name)
    parts = tabular.split_rows(len(table.target), options.seed)
    features = tabular.Scaling.of(table.features[parts.train])
    target = None if table.classes else tabular.Scaling.of(table.target[parts.train, None])
    x, y = features.apply(table.features), target.apply(table.target[:, None]) if target else table.target
    model = tabular.make_model(table, options.hidden, np.random.default_rng(options.seed))
    with _one_blas_thread():
        history = fit(
            model,
            (x[parts.train], y[parts.train]),
            validation=(x[parts.validation], y[parts.validation]),
            loss=tabular.classification_loss if table.classes else tabular.regression_loss,
            optimizer=optim.AdamW(options.lr, decay=options.decay),
            epochs=options.epochs,
            batch_size=options.batch_size,
            patience=options.patience,
            seed=options.seed,
            progress=not options.quiet,
        )
    tabular.fold_in(model, features, target)
    name, value = tabular.score(table, model, parts.test)
    report = {
        "data": table.name,
        "rows": len(table.target),
        "parameters": sum(leaf.size for leaf in tree.leaves(model)),
        "seed": options.seed,
        "epochs": len(history["epoch"]),
        "best_epoch": history.best_epoch,
        "stopped_by": history.stopped_by,
        "measure": name,
        "test": value,
    }
    files.save(model_path, model, meta=report | {"classes": table.classes})
    history.plot(curve_path)
    report |= {"model": model_path, "curve": curve_path}
    print(json.dumps(report) if options.json else _as_text(report))
    return INTERRUPTED if history.stopped_by == "interrupted" else OK


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Keep the BLAS to one thread, where threadpoolctl is there: products this small gain nothing from a second."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1)


def _as_text(report: dict[str, Any]) -> str:
    value = f"{report['test']:.2%}" if report["measure"] == "accuracy" else f"{report['test']:.3f}"
    return (
        f"{report['data']}: test {report['measure']} {value}, {report['parameters']:,} parameters\n"
        f"{_end(report)} after {report['epochs']} epochs, best was {report['best_epoch']}\n"
        f"wrote {report['model']} and {report['curve']}"
    )


# ---- info --------------------------------------------------------------------------------------------------


def _info(options: argparse.Namespace) -> int:
    """Print what a file says of itself."""
    info = files.info(options.file)
    print(json.dumps(_info_as_json(info)) if options.json else f"{options.file}: {_info_as_text(info)}")
    return OK


def _info_as_json(info: files.Info) -> dict[str, Any]:
    arrays = [
        {"path": entry.name, "shape": entry.shape, "dtype": entry.dtype, "offset": entry.start}
        for entry in info.entries
    ]
    return {
        "format": info.format,
        "nnflat": info.version,
        "arrays": arrays,
        "aliases": info.aliases,
        "architecture": info.architecture,
        "total": _total(info),
        "meta": info.meta,
    }


def _info_as_text(info: files.Info) -> str:
    total = ("total", f"{_total(info):,}", "", "")
    ties = [f"{_brief(name)} is {_brief(owner)}, axes {axes}" for name, (owner, axes) in info.aliases.items()]
    lines = [info.format + (f", by nnflat {info.version}" if info.version else "")]
    lines += [aligned([("path", "shape", "dtype", "byte"), *map(_row, info.entries), total]), *ties]
    if info.architecture:
        lines.append(_brief(info.architecture))
    if info.meta:
        lines.append(aligned([(_brief(name), _brief(value)) for name, value in info.meta.items()], left=2))
    return "\n".join(lines)


def _row(entry: Any) -> tuple[str, str, str, str]:
    return _brief(entry.name), str(entry.shape), entry.dtype, f"{entry.start:,}"


def _total(info: files.Info) -> int:
    return sum(math.prod(entry.shape) for entry in info.entries)


def _brief(value: object) -> str:
    """Return one printable line: what a file says is not sent to a terminal as it is."""
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


# ---- bench -------------------------------------------------------------------------------------------------


def _bench(options: argparse.Namespace) -> int:
    """Time the ways between tree and flat vector on this machine."""
    from nnflat import bench

    rows = []
    for name, model in bench.models(np.random.default_rng(options.seed)).items():
        if not options.quiet:
            print(f"measuring {name}", file=sys.stderr, flush=True)
        rows += bench.measure(name, model)
    if options.json:
        print(json.dumps(bench.as_json(rows)))
        return OK
    print("\n".join(f"{name}: {value}" for name, value in bench.machine().items()))
    print(bench.table(rows))
    return OK


# ---- dashboard ---------------------------------------------------------------------------------------------


def _dashboard(options: argparse.Namespace) -> int:
    """Make the page of the benchmarks whole, and serve it on this machine until Ctrl-C."""
    from nnflat import dashboard

    page = dashboard.build(dashboard.find_suite(), run=options.run, quick=options.quick)
    print(f"report: {page / 'report.html'}")
    if options.no_serve:
        return OK
    with dashboard.server(page, options.port) as served:
        print(f"dashboard: http://{dashboard.HOST}:{served.server_port}/ (end with Ctrl-C)", flush=True)
        served.serve_forever()
    return OK
