"""Mutants of stored results, expiry and rows in flight."""

from tests.mutants import ADD, EAGER, RESULTS, Mutant

INTERVAL_MUTANTS = [
    Mutant("stored results never end", "engine.mjoin:_Hop._still_open", "if ends is None or", "if True or"),
    Mutant(
        "stored results end a moment late",
        "engine.mjoin:_Hop._still_open",
        ">= partials.latest[needles]",
        ">= partials.latest[needles] - 1",
    ),
    Mutant("limit is the longest", "engine.mjoin:_Hop._bind", "np.minimum(partials.last", "np.maximum(partials.last"),
    Mutant("latest is the earliest", "engine.mjoin:_Hop._bind", "np.maximum(partials.lat", "np.minimum(partials.lat"),
    Mutant("limit of a probing result unknown", "engine.mjoin:_Hop.start", "if ends is None else", "if True else"),
    Mutant("limit of a bound result unknown", "engine.mjoin:_Hop._bind", "if ends is None else", "if True else"),
    Mutant(
        "the span of results is too short",
        "plan.layout:lay_out",
        "_span(query, streams_of(tree))",
        "_span(query, streams_of(tree)) if limit is None else 1",
    ),
    Mutant(
        "results expire by their latest time",
        "engine.compaction:last_of",
        "last_of_limits(run.payload.column(layout.limit).slice(rows.start, run.rows).to_numpy())",
        "run.times(rows)",
    ),
    # time
    Mutant("nothing is late", "engine.inbox:_keep", "if late.any():", "if False:"),
    Mutant(
        "on the watermark is late",
        "engine.inbox:_keep",
        "_micros(column) < watermark_us",
        "_micros(column) <= watermark_us",
    ),
    Mutant("no event time is a time", "engine.inbox:_keep", "keep &= timed", "pass"),
    Mutant("the fastest stream leads", "epoch.after:_watermark", "reached = min(", "reached = max("),
    Mutant(
        "the watermark falls",
        "epoch.after:_watermark",
        "return reached if before is None else max(before, reached)",
        "return reached",
    ),
    Mutant("the watermark ignores delays", "epoch.after:_watermark", "before_us(t, plan.delays_us[i])", "t"),
    Mutant("the watermark forgets earlier batches", "epoch.task:later", "max(a, b)", "b"),
    Mutant(
        "a stream not yet seen does not count",
        "epoch.after:_watermark",
        "if not active or any(t is None for t in latest):",
        "if not any(t is not None for t in latest):",
    ),
    Mutant(
        "idle a moment early",
        "epoch.after:Clock.is_idle",
        "> timeout",
        ">= timeout",
    ),
    Mutant("a pause counts as silence", "epoch.after:Clock.is_idle", "max(seen_ms, self.started_ms)", "seen_ms"),
    Mutant(
        "silence counts from the start alone",
        "epoch.after:Clock.is_idle",
        "max(seen_ms, self.started_ms)",
        "self.started_ms",
    ),
    # the ends of time
    Mutant(
        "a last moment wraps round",
        "state.moments:last_moments",
        "np.minimum(times, np.int64(LATEST_US - span_us + 1))",
        "times",
    ),
    Mutant(
        "a first moment wraps round",
        "state.moments:first_moments",
        "np.maximum(times, np.int64(EARLIEST_US + span_us - 1))",
        "times",
    ),
    Mutant(
        "a stored limit wraps round",
        "state.moments:limits_of_last",
        "moments + np.int64(1)",
        "np.where(moments == LATEST_US, EARLIEST_US + 1, moments + np.int64(1))",
    ),
    # expiry
    Mutant(
        "extents expire a moment early",
        "epoch.task:expired",
        "expires_us <= watermark_us",
        "expires_us <= watermark_us + 1",
    ),
    Mutant("rows expire a moment early", "engine.compaction:by_bucket", ">= watermark_us", ">= watermark_us + 1"),
    Mutant("extents expire with their first row", "engine.generations:end_of", "slice()).max()", "slice()).min()"),
    Mutant(
        "expiry ignores delays", "engine.expiry:watermark_bound", "before_us(latest[stream], delay)", "latest[stream]"
    ),
    Mutant("expiry follows the fastest stream", "engine.expiry:watermark_bound", "bound = min(", "bound = max("),
    Mutant("expiry before the batch is probed", RESULTS, ADD, EAGER),
    # predicates and results
    Mutant(
        "residuals are not applied",
        "engine.mjoin:_Hop.filtered",
        "if newest in residual.inputs and residual.inputs <= bound:",
        "if False:",
    ),
    Mutant(
        "predicates over one stream miss the row that probes",
        "engine.mjoin:probe",
        "hop.filtered(hop.start(part + int(delta.starts[0]), ranks[part]), origin)",
        "hop.start(part + int(delta.starts[0]), ranks[part])",
    ),
    Mutant(
        "predicates over one stream have no node",
        "plan.nodes:_residuals",
        "streams <= inside for inside in joined",
        "streams <= inside for inside in inputs",
    ),
    Mutant(
        "a registered predicate that knows nothing says yes",
        "engine.calls:_from_rows",
        "None if value is None else bool(value)",
        "value is None or bool(value)",
    ),
    Mutant(
        "a registered predicate is called for decided rows only",
        "engine.expressions:_where_open",
        "undecided = pc.fill_null(pc.not_equal(known, decisive), True)",
        "undecided = pc.fill_null(pc.equal(known, decisive), True)",
    ),
    Mutant(
        "a predicate that may fail comes before its guard",
        "plan.residual_order:evaluation_order",
        "is_safe[i] or i == waiting[0]",
        "True",
    ),
    Mutant(
        "rows of several runs are gathered in the wrong order",
        "engine.bound:_locate",
        "place[index]",
        "np.sort(place[index])",
    ),
    Mutant(
        "the first rows of a run are gathered for those that are left",
        "engine.bound:_cut",
        "rows[index[low:high] - first]",
        "rows[np.arange(high - low)]",
    ),
    Mutant("unknown is true", "engine.expressions:evaluate", "fill_null(False)", "fill_null(True)"),
    Mutant("results mix up rows", "engine.mjoin:Bound.narrowed", "self.index[rows]", "np.sort(self.index[rows])"),
]
