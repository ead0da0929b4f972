"""Mutants of changes of the query: see `tests/mutants.py`. Those of `tests/changing.py` must fail under them."""

from tests.mutants import Mutant

CHANGE_MUTANTS = [
    Mutant(
        "a filter that is added is forgotten in stored rows",
        "engine.rebuild:_carried",
        "for test in feed.tests:",
        "for test in ():",
    ),
    Mutant(
        "stored results that pass an old predicate are kept",
        "plan.query_change:_dependencies",
        "[] if is_leaf else residuals,",
        "[],",
    ),
    Mutant(
        "stores of rows that are filtered now are kept",
        "plan.query_change:_kept",
        " and not tested & streams",
        "",
    ),
    Mutant(
        "the old window is kept in stored rows and intervals",
        "plan.query_change:_dependencies",
        "(s.name, query.windows_us[i], s.event_time, s.derived)",
        "(s.name, s.event_time, s.derived)",
    ),
    Mutant(
        "rows that have expired come back when a window grows",
        "engine.rebuild:_carried",
        "narrowed(last >= watermark_us)",
        "narrowed(last > 0)",
    ),
    Mutant(
        "old stores are added to those that are built",
        "plan.carrying:Carry.renamed",
        "name if name in self.kept else name._replace(track=PINNED)",
        "name",
        crashes="nothing is on the track that is read",
    ),
    Mutant(
        "a column that was not kept gets another one's values",
        "plan.carrying:StoredStream.carried",
        'self.source(wanted) or ColumnSource("null", 0, kind)',
        'self.source(wanted) or ColumnSource("payload", 0, kind)',
    ),
    Mutant(
        "any column that was not kept may be stuffed",
        "plan.query_change:_is_only_selected",
        "return wanted not in tested",
        "return True",
    ),
    Mutant(
        "owed results are not emitted before the query changes",
        "adaptation.migration:step_of_change",
        "if orders := draining(plan, last, bytes_at_once):",
        "if orders := ():",
    ),
    Mutant(
        "a change begins in the middle of a migration",
        "adaptation.migration:step_of_change",
        "if last.migration is not None:",
        "if False:",
    ),
    Mutant(
        "the times of streams keep their places when a stream goes",
        "epoch.migrating:_carried",
        "otherwise if old is None else values[old] for old in carry.streams",
        "values[i % len(values)] for i, old in enumerate(carry.streams)",
    ),
    Mutant(
        "the others do not wait for a stream that is added",
        "epoch.migrating:_carried",
        "of_streams(manifest.times_max_us, None)",
        "of_streams(manifest.times_max_us, max(manifest.times_max_us))",
    ),
    Mutant(
        "the watermark begins again with a stream that is added",
        "epoch.migrating:_carried",
        "times_max_us=",
        "watermark_us=None, times_max_us=",
    ),
    Mutant(
        "stored rows of a stream become those of another",
        "plan.query_change:_stored",
        "layouts[name], name)",
        "layouts[next(iter(layouts))], name)",
    ),
    Mutant(
        "aggregates of another column go on with the old sums",
        "plan.query_change:_accumulated",
        "f'{a.made} {arguments[a.argument]}'",
        "a.made",
    ),
]
