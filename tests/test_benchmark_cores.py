"""The benchmark of statistics for cores runs, and prints a row for each data set."""

from benchmarks import cores


def test_every_statistic_has_its_numbers(capsys):
    cores.main(["--only", "moons", "--factors", "2", "--epochs", "2"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert all(statistic in lines[0] for statistic in cores.STATISTICS)
    assert lines[2].startswith("| moons |")
    assert lines[3].startswith("| mean |")
    assert all(-1 <= float(cell) <= 1 for cell in lines[2].split("|")[2:-1])
