"""Judges the rows of a soak: causes, the acceptance rules, and tables in Markdown."""

import collections
import statistics

FEWEST_RIGHT = 0.99
MOST_MEMORY_KIB = {"cpu": 16 << 10, "cuda": 40 << 10}  # of a launcher at any time; cuda: with NVML
# By how much a launcher's private memory may grow from the second third of a job to the last. In a
# short job, the buffers of a flood that has just ended may be in the median.
MOST_GROWTH_KIB = 512
MOST_GROWTH_OF_SHORT_KIB = 2 << 10
SHORT = 50  # faults


def with_cause(row, failures):
    """Adds the cause and rank that the report gives for the attempt which the fault ended.
    `failures`: the failed attempts, the first one first."""
    restarts = row.get("restarts", -1)
    ended = failures[restarts:restarts + 1] if row.get("lives") and restarts >= 0 else []
    if not ended:
        return {**row, "found": "none", "found_rank": None}
    return {**row, "found": ended[0].get("cause", {}).get("kind", "unknown"),
            "found_rank": ended[0]["first_failure"]["rank"],
            "text": ended[0].get("cause", {}).get("text", "")[:200]}


def is_right(row):
    """Whether the report names the injected cause and, if one rank has it, that rank."""
    if "trouble" in row or row["found"] != row["expected"]:
        return False
    return row["expected"] in ("none", "disk_full") or row["found_rank"] == row["rank"]


def spread(values):
    """Median, 90th percentile and maximum."""
    ordered = sorted(values)
    return (statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
            ordered[-1])


def growth(rows, size):
    """By how much a size of a launcher's agents grew from the second to the last third of a job:
    the largest of the differences of medians. Rows are those of one job. In states written before
    2026-11-28 the memory is the resident one."""
    samples = [row["sizes"] for row in rows if row.get("sizes")]
    if samples and size == "private" and "private" not in samples[0][0]:
        size = "rss"
    third = len(samples) // 3
    if third == 0:
        return 0
    agents = min(map(len, samples))
    return max((statistics.median(sample[agent][size] for sample in samples[-third:])
                - statistics.median(sample[agent][size] for sample in samples[third:-third])
                for agent in range(agents)), default=0)


def jobs_of(rows):
    runs = collections.defaultdict(list)
    for row in rows:
        runs[row["run"]].append(row)
    return list(runs.values())


def broken_rules(rows, not_judged=()):
    """The acceptance rules that these rows of mgpu-run break, as text. `not_judged`: faults whose
    cause may be wrong."""
    broken = [f"fault {row['number']} ({row['fault']} of rank {row['rank']}): {text}"
              for row in rows for key, text in (
                  ("trouble", "the job did not recover"), ("orphans", "orphan processes"),
                  ("lost_steps", "steps lost beyond the last checkpoint"),
                  ("changed_losses", "steps with another loss after the restart"),
                  ("missing_steps", "steps that were not reported"),
                  ("lost_lines", "lines of output lost")) if row.get(key)]
    wrong = [row for row in rows if not is_right(row) and row["fault"] not in not_judged]
    if len(wrong) > (1 - FEWEST_RIGHT) * len(rows):
        broken += [f"fault {row['number']} ({row['fault']} of rank {row['rank']}): diagnosed as "
                   f"{row['found']} of rank {row['found_rank']}: {row.get('text', '')}"
                   for row in wrong]
        broken.append(f"{len(wrong)} of {len(rows)} causes are wrong")
    for job in jobs_of(rows):
        if (more := growth(job, "fds")) > 0:
            broken.append(f"the launcher's descriptors grew by {more:g} in {len(job)} faults")
        most = MOST_GROWTH_KIB if len(job) >= SHORT else MOST_GROWTH_OF_SHORT_KIB
        if (more := growth(job, "private")) > most:
            broken.append(f"the launcher's memory grew by {more:g} KiB in {len(job)} faults")
        most = max((agent["hwm"] for row in job for agent in row.get("sizes", ())), default=0)
        if most > MOST_MEMORY_KIB[job[0].get("device", "cpu")]:
            broken.append(f"the launcher's memory reached {most} KiB")
    return broken


def confusion(rows):
    """Injected against diagnosed causes."""
    found = collections.Counter((row["fault"], row["expected"], row["found"], is_right(row))
                                for row in rows)
    lines = ["| injected | expected cause | reported cause | right | faults |",
             "| --- | --- | --- | --- | --- |"]
    for (fault, expected, reported, right), count in sorted(found.items()):
        note = "yes" if right else "no, the rank" if expected == reported else "no"
        lines.append(f"| {fault} | {expected} | {reported} | {note} | {count} |")
    right = sum(map(is_right, rows))
    lines.append(f"| **all** | | | {right} ({right / len(rows):.1%}) | {len(rows)} |")
    return lines


def recovery(rows):
    """Seconds from a fault that ended an attempt to the next step."""
    lines = ["| launcher | fault | faults | median s | 90 % s | max s |",
             "| --- | --- | --- | --- | --- | --- |"]
    for launcher in sorted({row["launcher"] for row in rows}):
        ended = [row for row in rows if row["launcher"] == launcher and row.get("lives")
                 and "seconds" in row]
        for name in sorted({row["fault"] for row in ended}):
            values = [row["seconds"] for row in ended if row["fault"] == name]
            lines.append(f"| {launcher} | {name} | {len(values)} | "
                         + " | ".join(f"{value:.2f}" for value in spread(values)) + " |")
        if ended:
            lines.append(f"| {launcher} | **all** | {len(ended)} | " + " | ".join(
                f"{value:.2f}" for value in spread([row["seconds"] for row in ended])) + " |")
    return lines


def totals(rows):
    lines = ["| launcher | faults | orphans | steps lost | changed losses | lines or steps not "
             "printed | jobs that did not recover | descriptors, growth | memory, growth; maximum |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for launcher in sorted({row["launcher"] for row in rows}):
        own = [row for row in rows if row["launcher"] == launcher]
        total = collections.Counter()
        for row in own:
            total.update({key: value for key, value in row.items() if key in (
                "orphans", "lost_steps", "changed_losses", "missing_steps", "lost_lines")})
        more = {size: max(growth(job, size) for job in jobs_of(own)) for size in ("fds", "private")}
        most = max((agent["hwm"] for row in own for agent in row.get("sizes", ())), default=0)
        lines.append(
            f"| {launcher} | {len(own)} | {total['orphans']} | {total['lost_steps']} | "
            f"{total['changed_losses']} | {total['lost_lines'] + total['missing_steps']} | "
            f"{sum('trouble' in row for row in own)} | {more['fds']:g} | "
            f"{more['private'] / 1024:.2f} MiB; {most / 1024:.1f} MiB |")
    return lines


def tables(rows):
    parts = ["\n".join(totals(rows)), "\n".join(recovery(rows))]
    ours = [row for row in rows if row["launcher"] == "mgpu-run"]
    if ours:
        parts.append("\n".join(confusion(ours)))
    return "\n\n".join(parts)
