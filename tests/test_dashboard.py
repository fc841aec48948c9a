"""The dashboard: found, whole without a network, served to this machine alone, and rendered by a real browser."""

import importlib
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from nnflat import dashboard
from nnflat.cli import main

SUITE = Path(__file__).parents[1] / "asv_bench"


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.syspath_prepend(SUITE)
    return importlib.import_module("offline")


def asv_index():
    asv = pytest.importorskip("asv")
    return (Path(asv.__file__).parent / "www" / "index.html").read_text(encoding="utf-8")


def remote(html):
    return re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]+)"', html)


def test_the_suite_is_found_from_a_folder_below_the_checkout():
    assert dashboard.find_suite(Path(__file__).parent) == SUITE


def test_outside_of_a_checkout_one_sentence_says_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(dashboard, "__file__", str(tmp_path / "nnflat" / "dashboard.py"))
    with pytest.raises(ValueError, match="needs a checkout"):
        dashboard.find_suite(tmp_path)


def test_without_asv_one_sentence_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    assert main(["dashboard"]) == 2
    assert "pip install asv" in capsys.readouterr().err


def test_the_page_is_served_to_this_machine_alone(tmp_path):
    (tmp_path / "index.html").write_text("whole")
    with dashboard.server(tmp_path) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        assert served.server_address[0] == "127.0.0.1"
        with urlopen(f"http://127.0.0.1:{served.server_port}/") as answer:
            assert answer.read() == b"whole"
        served.shutdown()


def test_every_library_of_asvs_page_has_a_copy_beside_it(offline, tmp_path):
    assert remote(asv_index())
    (tmp_path / "index.html").write_text(asv_index(), encoding="utf-8")
    offline.rewrite(tmp_path)
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert remote(html) == []
    assert "integrity=" not in html
    assert {*re.findall(r'="vendor/([^"]+)"', html)} <= set(offline.LIBRARIES)


def test_an_unknown_library_is_named(offline, tmp_path):
    (tmp_path / "index.html").write_text('<script src="https://example.org/new.js"></script>')
    with pytest.raises(ValueError, match=r"example\.org/new\.js"):
        offline.rewrite(tmp_path)


# ---- a real browser

HEADLESS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=20000",
    "--window-size=1200,900", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
VIEWS = {  # address behind the page's own: what must be there
    "#/": r'class="btn benchmark-container"',
    "#/summarylist": r'<td class="value"',
    "#flat.Copies.track_min": r'<canvas class="flot-base"',
    "#/regressions": r'id="regressions-body"[^>]*>\s*\S',
}


@pytest.fixture(scope="module")
def page():
    """Serve the dashboard of the kept results, built once."""
    if shutil.which("chromium") is None:
        pytest.skip("the page is not tested in a browser: chromium is not installed (Debian: apt install chromium)")
    built = dashboard.build(SUITE)
    with dashboard.server(built) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()


def visit(address, folder):
    """Return the page after its scripts ran, what its console said, and every address that was asked for."""
    log = folder / "net.json"
    command = ["chromium", *HEADLESS, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    run = subprocess.run([*command, address], capture_output=True, text=True, check=True, timeout=120)
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    return run.stdout, console, requested(json.loads(log.read_text()))


def requested(log):
    """Return the addresses that the page, and not the browser for itself, asked for, by the log of the network."""
    kind = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    started = [event["params"] for event in log["events"] if event["type"] == kind and "params" in event]
    own = ("http://127.0.0.1", "file:")
    return {params["url"] for params in started if params.get("initiator", "").startswith(own)}


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_a_browser_renders_the_view_and_asks_nobody_else(page, view, tmp_path):
    html, console, addresses = visit(page + view, tmp_path)
    assert re.search(VIEWS[view], html)
    assert console == []
    assert addresses
    assert {urlsplit(address).hostname for address in addresses} == {"127.0.0.1"}


@pytest.mark.slow
def test_a_browser_opens_the_report_from_disk(page, tmp_path):
    html, console, addresses = visit((SUITE / "html" / "report.html").as_uri(), tmp_path)
    assert html.count("<svg") >= 4
    assert console == []
    assert addresses == set()
