"""Made-up streams to try queries on, as Parquet files: three banks' offers, and the life of orders in a web shop.

    bank1, bank2, bank3     ts, broker, currency, lot, price
    orders                  ts, order_id, customer, amount
    payments                ts, order_id, method, paid
    parcels                 ts, order_id, parcel_id, weight
    scans                   ts, parcel_id, depot
    reviews                 ts, order_id, stars

Every stream is a folder with one file per micro-batch (`maxFilesPerTrigger=1`), in order of time but for a few seconds
of disorder. The same call gives the same rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import OptionError

BANKS = ("bank1", "bank2", "bank3")
SHOP = ("orders", "payments", "parcels", "scans", "reviews")
BATCHES = 12
SAMPLE_BATCHES = 3
SECONDS = 1800
CURRENCIES = ("USD", "EUR", "JPY", "GBP", "CHF", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "PLN")
LOTS = 1000
BROKERS = tuple(f"{name} & Sons" for name in ("Abel", "Birch", "Crane", "Dover", "Ember", "Finch", "Grove", "Hart"))
METHODS = ("card", "transfer", "invoice")
DEPOTS = ("north", "south", "east", "west")
START_US = 1_767_600_000_000_000

Micros = npt.NDArray[np.int64]


def make_samples(folder: Path, rows: int) -> None:
    """All sample streams, each in a folder of its name; none of them may exist yet."""
    if rows < SAMPLE_BATCHES:
        raise OptionError(f"--rows must be at least {SAMPLE_BATCHES}")
    for name in (*BANKS, *SHOP):
        if (folder / name).exists():
            raise OptionError(f"{folder / name} exists already", hint="name another folder, or remove it first")
    for seed, bank in enumerate(BANKS):
        make_offers(folder / bank, rows, seed, SAMPLE_BATCHES)
    _make_shop(folder, rows)


def make_offers(folder: Path, rows: int, seed: int, batches: int = BATCHES) -> None:
    """One bank's offers."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, SECONDS * 1_000_000, rows)) + rng.integers(0, 3_000_000, rows) + START_US
    currency = rng.integers(0, len(CURRENCIES), rows)
    table = pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
            "broker": pa.array(BROKERS).take(pa.array(rng.integers(0, len(BROKERS), rows))),
            "currency": pa.array(CURRENCIES).take(pa.array(currency)),
            "lot": pa.array(rng.integers(0, LOTS, rows), pa.int32()),
            "price": np.round(100 * (1 + currency) + rng.normal(0, 3, rows), 2),
        }
    )
    _write(folder, table, batches)


def _make_shop(folder: Path, rows: int) -> None:
    """Every order is paid and sent within minutes, its parcel scanned twice; one in three is reviewed."""
    rng = np.random.default_rng(len(BANKS))
    ordered = np.sort(rng.integers(0, SECONDS * 1_000_000, rows)) + START_US
    ids = np.arange(rows, dtype=np.int64)

    def later(times: Micros, seconds: int) -> Micros:
        return times + rng.integers(0, seconds * 1_000_000, len(times))

    sent = later(ordered, 120)
    reviewed = rng.choice(ids, rows // 3, replace=False)
    amount = np.round(rng.gamma(2.0, 20.0, rows), 2)
    tables = {
        "orders": {"ts": ordered, "order_id": ids, "customer": rng.integers(0, rows // 3 + 1, rows), "amount": amount},
        "payments": {"ts": later(ordered, 60), "order_id": ids, "method": _drawn(rng, METHODS, rows), "paid": amount},
        "parcels": {"ts": sent, "order_id": ids, "parcel_id": ids + 10_000, "weight": rng.integers(1, 20, rows)},
        "scans": {
            "ts": later(np.concatenate([sent, sent]), 180),
            "parcel_id": np.concatenate([ids, ids]) + 10_000,
            "depot": _drawn(rng, DEPOTS, 2 * rows),
        },
        "reviews": {
            "ts": later(ordered[reviewed], 300),
            "order_id": reviewed,
            "stars": pa.array(rng.integers(1, 6, len(reviewed)), pa.int32()),
        },
    }
    for name, columns in tables.items():
        table = pa.table(columns).sort_by("ts")
        table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", tz="UTC")))
        _write(folder / name, table, SAMPLE_BATCHES)


def _drawn(rng: np.random.Generator, words: tuple[str, ...], rows: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), rows)))


def _write(folder: Path, table: pa.Table, batches: int) -> None:
    folder.mkdir(parents=True)
    rows = table.num_rows
    for i in range(batches):
        first, last = i * rows // batches, (i + 1) * rows // batches
        path = folder / f"{i:04d}.parquet"
        pq.write_table(table.slice(first, last - first), path)
        os.utime(path, (START_US // 10**6 + i, START_US // 10**6 + i))  # Spark reads files in order of their age
