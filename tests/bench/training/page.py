"""The page for docs/benchmarks, in Markdown. Nothing here measures or decides."""

from .cases import SECONDS

DASH = "-"


def number(value, unit):
    """A figure with as many digits as its size needs."""
    if value is None:
        return DASH
    if unit == "tok/s":
        return f"{value:,.0f} tok/s"
    if unit == SECONDS:
        return f"{value:.2f} s" if value >= 1 else f"{value:.3f} s"
    if unit == "GiB":
        return f"{value:.2f} GiB"
    return f"{value:.2f} {unit}"


def cell(text):
    """Text of a program, such as an error, inside a table."""
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell(text) for text in row) + " |"


def plan_text(runs):
    plan, peak = runs.largest("plan_gib"), runs.largest("peak_gib")
    if plan is None:
        return DASH
    return number(plan, "GiB") + (f" ({100 * (plan / peak - 1):+.1f} %)" if peak else "")


def figure_rows(results):
    for result in results:
        ours, case = result.ours, result.case
        if not ours.value:
            continue
        tflops = ours.largest("tflops")
        yield (case.title, number(ours.value, case.unit), f"{ours.spread_percent:.1f} %",
               f"{tflops:.0f}" if tflops else DASH, number(ours.largest("peak_gib"), "GiB"),
               plan_text(ours), f"{ours.clock:.0f} MHz" if ours.clock else DASH)


def check_rows(checked):
    """`checked`: pairs of a result and its checks."""
    for result, checks in checked:
        for check in checks:
            sign = ">=" if check.at_least else "<="
            met = "yes" if check.met else "**no: regression**" if check.is_bar else "not yet"
            source = f" ({check.source})" if check.source else ""
            yield (result.case.title, check.what, number(check.measured, check.unit),
                   f"{sign} {number(check.limit, check.unit)}{source}", met)


def peer_rows(results):
    for result in results:
        case = result.case
        for name, runs in result.peers.items():
            times = result.times(name)
            figure = number(runs.value, case.unit) if runs.value else f"failed: {runs.failure}"
            yield (case.title, name, runs.versions, figure, number(runs.largest("peak_gib"), "GiB"),
                   f"{times:.2f} x" if times else DASH)


def gaps(results, missing):
    """What is not in the tables, and why."""
    for result in results:
        why = result.left_out or result.ours.failure and f"failed: {result.ours.failure}"
        if why:
            yield f"- {result.case.title}: {why}"
    for peer, packages in missing.items():
        yield f"- {peer}: not on this machine ({', '.join(packages)})"


def section(title, lines):
    lines = list(lines)
    return ["", f"## {title}", "", *lines] if lines else []


def page(machine, results, checked, missing, bars_note, command):
    """The lines of the page. `missing`: the packages that each absent peer lacks."""
    checks, peers = list(check_rows(checked)), list(peer_rows(results))
    lines = ["# The trainer beside other programs", "", "| | |", "| --- | --- |",
             *(f"| {name} | {cell(text)} |" for name, text in machine),
             *section("Figures of mgpu-train", table(
                 ("case", "median", "spread", "TFLOP/s", "peak memory", "plan", "SM clock"),
                 figure_rows(results))),
             *section("Release bars and goals",
                      table(("case", "what", "measured", "limit", "met"), checks)
                      if checks else ()),
             *section("Beside other programs", table(
                 ("case", "program", "versions", "median", "peak memory", "mgpu-train"), peers)
                 if peers else ()),
             *section("Not measured", gaps(results, missing))]
    lines += ["", bars_note, "", f"    {command}", ""]
    return "\n".join(lines)
