"""The program of docs/spark.md, its commands for a cluster, and the program of docs/python.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ketal.streaming.broker.settings import free_port
from ketal.streaming.jvm.java import find_java, newest_for_spark, spark_home
from ketal.streaming.spark.__main__ import write_package
from tests.page_blocks import blocks, page, write_files
from tests.sampling import in_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(sh|text|python)\n(.*?)^```$", re.M | re.S)


def test_program_of_the_spark_page_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = [text for kind, text in _BLOCK.findall(PAGE) if kind == "python"]
    names = {"spark": spark}
    for program in programs:
        exec(program, names)
    output = capsys.readouterr().out
    assert '|match  |{"height":7}|[m1@1, m2@1]|' in output
    assert output.endswith("3 read: 2 accepted, 1 rejected; 1 without a height\n")


def test_spark_program_of_the_python_page_runs(
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = page("python.md")
    write_files(text, tmp_path)
    monkeypatch.chdir(tmp_path)
    (program,) = (block for block in blocks(text, "python") if "ketal.streaming.spark" in block)
    exec(program, {"spark": spark})
    output = capsys.readouterr().out
    assert "|match  |Race   |[a@1, b@1]|" in output


def test_archive_for_executors_is_an_importable_package(tmp_path: Path) -> None:
    count = write_package(tmp_path / "ketal.zip")
    names = zipfile.ZipFile(tmp_path / "ketal.zip").namelist()
    assert count == len(names) == len(set(names))
    for name in ("__init__.py", "grammar/pattern.lark", "operators/causal.py",
                 "streaming/spark/operator.py"):  # fmt: skip
        assert f"ketal/{name}" in names
    done = subprocess.run(
        [sys.executable, "-c", "import ketal; print(ketal.__file__); ketal.compile('"
         "pattern P { event E = type == \"e\"; find any E E; order CausalOrder; }')"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "ketal.zip")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "ketal.zip") in done.stdout


@in_long
@pytest.mark.usefixtures("jars")  # Downloads the jars, or skips with the reason.
def test_cluster_of_a_master_and_two_workers_gives_the_verdicts_of_run(tmp_path: Path) -> None:
    """Executors import ketal from the archive: any other ketal on their path is broken."""
    _, _, cluster = PAGE.partition("## On a cluster")
    blocks = _BLOCK.findall(cluster)
    script = "".join(text for kind, text in blocks if kind == "sh")
    broken = tmp_path / "broken" / "ketal"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('not the one of the archive')")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{broken.parent}" exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    java = find_java(newest=newest_for_spark(version("pyspark")))
    cleared = "kill $(jobs -p); ketal broker stop --dir spark.broker"
    ended = subprocess.run(
        ["bash", "-eu", "-c", f"trap '{cleared}' ERR\n{script}"],
        cwd=tmp_path,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "JAVA_HOME": str(spark_home(java)),
            "MASTER_PORT": str(free_port()),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # Six JVMs that run for seconds.
            "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    logs = "".join(path.read_text()[-2_000:] for path in tmp_path.glob("*.log"))
    assert ended.returncode == 0, ended.stdout + ended.stderr + logs
    (shown,) = (text for kind, text in blocks if kind == "text")
    assert shown in ended.stdout
    # spark-submit prints a few lines for a job without faults, without a hundred of Ivy.
    assert "Exception" not in ended.stderr
    assert len(ended.stderr.splitlines()) < 20, ended.stderr
    assert len((tmp_path / "from-spark.jsonl").read_text().splitlines()) == 4
