"""The page of a sweep, from its results to one HTML text."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from roamcast.lab.published import rows_of_sweep
from roamcast.lab.published.standing import sentence
from roamcast.lab.report.figures import ReportedSweep, ReportFigure, along_axes, placeholder
from roamcast.lab.report.layout import layout
from roamcast.lab.report.markup import Markup, element, folded, joined, page, section, table
from roamcast.lab.report.numbers import numbered
from roamcast.lab.report.samples import RunSamples, latency_figure, reasons_figure
from roamcast.lab.report.sections import by_cell, differences, overview, published_table, verdict_section
from roamcast.lab.run.metrics import metric_of
from roamcast.lab.sweep.results import Results
from roamcast.pages import bundle


def render(results: Results, samples: RunSamples | None = None, plays: bool = False) -> str:
    """The whole document. `plays`: beside it there is a page that plays for each cell that has a sample."""
    text, _ = with_figures(results, samples, plays)
    return text


def with_figures(
    results: Results, samples: RunSamples | None = None, plays: bool = False
) -> tuple[str, list[ReportFigure]]:
    """The document, and the figures on it as data."""
    sweep = ReportedSweep(results, layout(results.description.axes), rows_of_sweep(results))
    figures: list[ReportFigure] = []
    played = samples.names if plays and samples is not None else {}
    text = page(
        f"{results.description.experiment} · Roamcast",
        _head(sweep),
        *(
            [_nothing(sweep)]
            if not sweep.measured
            else _findings(sweep, samples or RunSamples(), played, figures)
        ),
        _what_was_run(sweep),
        _failed(sweep),
        _reading(sweep),
        script=bundle("report.js"),
        data=msgspec.json.encode(figures).decode(),
    )
    return text, figures


def _findings(
    sweep: ReportedSweep, samples: RunSamples, played: Mapping[int, str], figures: list[ReportFigure]
) -> list[Markup]:
    return [
        *([verdict_section(sweep, played, figures)] if sweep.compares else []),
        *([_published(sweep)] if sweep.published else []),
        along_axes(sweep, figures),
        *_from_runs(sweep, samples, figures),
        *([differences(sweep)] if sweep.compares else []),
        *([overview(sweep)] if sweep.compares else []),
        by_cell(sweep, played),
    ]


def _from_runs(sweep: ReportedSweep, samples: RunSamples, figures: list[ReportFigure]) -> list[Markup]:
    """How long deliveries took, and why others did not happen."""
    made: list[Markup] = []
    latency = latency_figure(samples, sweep.layout)
    if latency is not None:
        caption = (
            "All runs, all cells: how high a line ends is what was delivered, how early it rises, how fast."
        )
        figures.append(latency)
        made.append(placeholder(latency, caption))
    reasons = reasons_figure(samples, sweep.layout)
    if reasons is not None:
        caption = f"As `roamcast why` explains them; one run of each cell ({len(samples.names)} runs)."
        figures.append(reasons)
        made.append(placeholder(reasons, caption))
    if not made:
        return []
    return [
        section("How long it took, and what was lost", element("div", *made, class_="plots"), anchor="runs")
    ]


UNSCRIPTED = "The figures on this page are drawn by a script; without it, the tables have all their numbers."

# Head and description.


def _head(sweep: ReportedSweep) -> Markup:
    description = sweep.results.description
    runs, failed = len(sweep.results.runs), len(sweep.results.failed)
    tiles = [
        (runs - failed, "runs measured"),
        (failed, "runs failed"),
        *([(sweep.results.missing, "runs to come")] if sweep.results.missing else []),
        (len(sweep.layout.cells), "cells"),
        (len(description.seeds), "seeds per cell"),
    ]
    links = []
    if sweep.measured:
        links += [("verdict", "Verdict")] if sweep.compares else []
        links += [("published", "Published figures")] if sweep.published else []
        links += [("plots", "Plots")]
        links += [("differences", "Differences")] if sweep.compares else []
        links += [("overview", "Overview")] if sweep.compares else []
        links += [("cells", "Cell by cell")]
    links += [("run", "What was run")]
    links += [("failed", "Failed runs"), ("reading", "How to read this")]
    scenario = description.scenario.get("scenario", {}).get("name", "")
    return joined(
        [
            element("h1", description.experiment),
            element(
                "p",
                f"A sweep of the scenario “{scenario}”, by Roamcast {description.roamcast}.",
                class_="lead",
            ),
            element(
                "ul",
                *(element("li", element("b", f"{count:,}"), element("span", what)) for count, what in tiles),
                class_="tiles",
            ),
            element("p", UNSCRIPTED, class_="note unscripted"),
            element("nav", *(element("a", text, href=f"#{anchor}") for anchor, text in links)),
        ]
    )


def _what_was_run(sweep: ReportedSweep) -> Markup:
    description = sweep.results.description
    most = len(sweep.layout.cells) * len(description.seeds)
    rows = [
        (element("code", axis.key), ", ".join(axis.labels), axis.unit or "–")
        for axis in sweep.layout.axes.values()
    ]
    return section(
        "What was run",
        element(
            "p",
            f"Every combination of the values below, each with the seeds {numbered(description.seeds)}",
            ", some with fewer of them: " if len(sweep.results.runs) < most else ": ",
            f"{len(sweep.layout.cells):,} cells, {len(sweep.results.runs):,} runs.",
        ),
        table(["axis", "values", "unit"], rows, texts=3),
        folded("The scenario", element("pre", _toml(description.scenario))),
        anchor="run",
    )


def _nothing(sweep: ReportedSweep) -> Markup:
    return section(
        "No results",
        element(
            "p", f"None of the {len(sweep.results.runs):,} runs ended well, so there is nothing to measure."
        ),
        anchor="cells",
    )


# Published figures, failures, reading.


def _published(sweep: ReportedSweep) -> Markup:
    return section(
        "Published figures",
        element("p", f"{sentence(sweep.published)}."),
        published_table(sweep.published),
        anchor="published",
    )


def _failed(sweep: ReportedSweep) -> Markup:
    failed = sweep.results.failed
    if not failed:
        return section("Failed runs", element("p", "None."), anchor="failed")
    rows = []
    for run in failed:
        where = (
            sweep.layout.full_label(sweep.layout.cells[run.cell])
            if run.cell < len(sweep.layout.cells)
            else ""
        )
        rows.append([element("code", run.run), where, run.seed, run.error])
    return section(
        "Failed runs",
        element(
            "p", f"{len(failed):,} of {len(sweep.results.runs):,} runs failed. They are in no figure above."
        ),
        table(["run", "cell", "seed", "error"], rows, texts=4),
        anchor="failed",
    )


def _reading(sweep: ReportedSweep) -> Markup:
    meanings = [
        (element("code", name), metric_of(name).meaning, metric_of(name).unit or "–")
        for name in sweep.measured
    ]
    texts = [
        "A figure of a cell is the mean over its seeds. Its 95% confidence interval is Student’s t "
        "interval of that mean; with few seeds it is wide, and for a ratio near 0 or 1 it may reach "
        "beyond what is possible.",
        "The same seed gives the same motion and publications in every cell that has the same world, so "
        "runs are compared in pairs of one seed by a two-sided paired t-test. Where fewer than two seeds "
        "are shared, Welch’s t-test takes its place. Over several cells, each seed counts once, with its "
        "mean over them. Many tests at once find something by chance; Holm’s correction keeps the chance "
        "of even one false finding at 5%.",
    ]
    parts: list[object] = [element("p", text) for text in texts]
    if meanings:
        parts.append(folded("What the metrics mean", table(["metric", "meaning", "unit"], meanings, texts=3)))
    return section("How to read this", *parts, anchor="reading")


def _toml(tables: dict[str, Any]) -> str:
    """The scenario roughly as its file has it: for reading, not for parsing."""
    lines = []
    for name, content in tables.items():
        if isinstance(content, dict):
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
            lines.append("")
        else:
            lines += [f"{name} = {json.dumps(content, ensure_ascii=False)}", ""]
    return "\n".join(lines).rstrip()
