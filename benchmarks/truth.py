"""Summarises the rows of plan_truth: errors of predicted times, ranking of plans, and peaks."""

import math
import statistics

from measure import PROBE_BOUND

# Requirements: mean and worst error of a step's time, and both rank correlations.
MEAN_MOST, WORST_MOST, RANK_LEAST, COUNT_LEAST = 0.05, 0.12, 0.9, 24


def ranks(values):
    """Ranks from 0; equal values get their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for place in order[begin:end]:
            result[place] = (begin + end - 1) / 2
        begin = end
    return result


def spearman(a, b):
    """Pearson's correlation of the ranks."""
    a, b = ranks(a), ranks(b)
    mean_a, mean_b = statistics.fmean(a), statistics.fmean(b)
    above = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    below = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return above / below if below else 1.0


def kendall(a, b):
    """Tau-b: pairs in the same order minus those in opposite order, over the pairs that are not tied."""
    pairs = [(a[i] - a[j], b[i] - b[j]) for i in range(len(a)) for j in range(i)]
    same = sum((x > 0) == (y > 0) for x, y in pairs if x and y)
    other = sum((x > 0) != (y > 0) for x, y in pairs if x and y)
    below = math.sqrt(sum(x != 0 for x, _ in pairs) * sum(y != 0 for _, y in pairs))
    return (same - other) / below if below else 1.0


def summary(rows):
    """All figures of the claim. Errors: |predicted / measured - 1|."""
    errors = [abs(row["error"]) for row in rows]
    predicted, measured = [row["predicted_s"] for row in rows], [row["measured_s"] for row in rows]
    return {"count": len(rows), "mean_error": statistics.fmean(errors), "worst_error": max(errors),
            "kendall": kendall(predicted, measured), "spearman": spearman(predicted, measured),
            "bias": statistics.fmean(row["error"] for row in rows),
            "peaks_equal": sum(row["peaks_equal"] for row in rows),
            "steady": sum(row["probe_moved"] <= PROBE_BOUND for row in rows),
            "profiles": sorted({row["profile"]["hash"] for row in rows})}


def within(rows):
    """Kendall's tau over the plans of one model and dtype with the same number of tokens a step, if there are several:
    the mean over such groups, and how many there are."""
    groups = {}
    for row in rows:
        facts = row["facts"]
        groups.setdefault((facts["model"], facts["dtype"], facts["batch"], facts["sequence"]), []).append(row)
    several = [group for group in groups.values() if len(group) > 1]
    taus = [kendall([row["predicted_s"] for row in group], [row["measured_s"] for row in group]) for group in several]
    return (statistics.fmean(taus) if taus else None), len(several)


def apart(rows):
    """The mean spread between attempts at a configuration, and how many had several: no prediction can be more
    accurate."""
    several = [row["attempts_s"] for row in rows if len(row.get("attempts_s", [])) > 1]
    spreads = [(max(seconds) - min(seconds)) / statistics.median(seconds) for seconds in several]
    return (statistics.fmean(spreads) if spreads else None), len(several)


def inside(rows):
    """Of the rows predicted with a spread, how many were measured within it, and how many there are."""
    spread = [row for row in rows if row["facts"].get("p10_s", 0) < row["facts"].get("p90_s", 0)]
    return sum(row["facts"]["p10_s"] <= row["measured_s"] <= row["facts"]["p90_s"] for row in spread), len(spread)


def lines(rows):
    """The summary for people."""
    if not rows:
        return ["nothing was measured"]
    it = summary(rows)
    tau, groups = within(rows)
    spread, repeated = apart(rows)
    within_spread, with_spread = inside(rows)
    return [f"{it['count']} configurations: error {it['mean_error'] * 100:.1f} % in the mean, "
            f"{it['worst_error'] * 100:.1f} % at worst, bias {it['bias'] * 100:+.1f} %; Kendall's tau "
            f"{it['kendall']:.3f}, Spearman's rho {it['spearman']:.3f}; peaks equal in {it['peaks_equal']}; "
            f"{it['steady']} steady (probe within {PROBE_BOUND * 100:g} %); profile {', '.join(it['profiles'])}",
            *([f"plans of one model among themselves: tau {tau:.2f} in the mean of {groups} groups"] if groups else []),
            *([f"measured between the predicted p10 and p90: {within_spread} of {with_spread}"] if with_spread else []),
            *([f"attempts at one configuration: {spread * 100:.1f} % apart in the mean of {repeated}"] if repeated else [])]


def misses(rows):
    """The requirements that are not met, in words."""
    it = summary(rows)
    tau, _ = within(rows)
    asked = (("fewer than 24 configurations", it["count"] >= COUNT_LEAST),
             ("mean error", it["mean_error"] <= MEAN_MOST), ("worst error", it["worst_error"] <= WORST_MOST),
             ("Kendall's tau", it["kendall"] >= RANK_LEAST), ("Spearman's rho", it["spearman"] >= RANK_LEAST),
             ("tau of plans of one model", tau is None or tau >= RANK_LEAST),
             ("peaks", it["peaks_equal"] == it["count"]), ("one profile", len(it["profiles"]) == 1))
    return [name for name, met in asked if not met]
