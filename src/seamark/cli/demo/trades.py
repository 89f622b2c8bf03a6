"""The trades of the demo: everything about trade number n follows from n alone.

So what the sinks must show can be computed without Spark, without Seamark and without reading them.
The pipeline says the same in Spark's words; a test holds the two against each other.

Tests: ``tests/cli/demo/test_command.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SYMBOLS: Final = ("ALDR", "BRCH", "CEDR", "ELMS", "HAZL", "LIND", "MAPL", "OAKS", "PINE", "WLLW")
TRADES_PER_EPOCH: Final = 1000

OPENING_MS: Final = 1_767_605_400_000  # 2026-01-05 09:30 UTC
MS_BETWEEN_TRADES: Final = 50
# an epoch holds 50 seconds of trading: every bar needs what an earlier epoch left in the state
BAR_MS: Final = 60_000
DELAY_MS: Final = 10_000
LARGE_ABOVE: Final = 980


class Trade(NamedTuple):
    """One row of the source, and of the sinks ``large`` and ``latest``."""

    number: int
    time: int
    symbol: str
    price: float
    qty: int


class Bar(NamedTuple):
    """One row of the sink ``bars``: a minute of one symbol. Times are milliseconds since 1970."""

    symbol: str
    start: int
    end: int
    open: float
    high: float
    low: float
    close: float
    volume: int
    trades: int


def trade(number: int) -> Trade:
    """Trade number ``number``, counted from 0."""
    return Trade(
        number=number,
        time=OPENING_MS + number * MS_BETWEEN_TRADES,
        symbol=SYMBOLS[number % len(SYMBOLS)],
        price=(10_000 + number * 7919 % 2003) / 100,
        qty=number * 104_729 % 1009 + 1,
    )


def large_trades(count: int) -> Iterator[Trade]:
    """The large ones among the first ``count`` trades."""
    return (one for one in map(trade, range(count)) if one.qty > LARGE_ABOVE)


def latest_trades(count: int) -> Iterator[Trade]:
    """The newest trade of each symbol among the first ``count``: they take turns."""
    return map(trade, range(max(count - len(SYMBOLS), 0), count))


def closed_bars(count: int, watermark_ms: int) -> Iterator[Bar]:
    """The bars of the first ``count`` trades that a batch with this watermark has closed."""
    minutes: dict[tuple[str, int], list[Trade]] = {}
    for one in map(trade, range(count)):
        minutes.setdefault((one.symbol, one.time - one.time % BAR_MS), []).append(one)
    for (symbol, start), trades in minutes.items():
        if start + BAR_MS <= watermark_ms:
            prices = [one.price for one in trades]
            yield Bar(
                symbol=symbol,
                start=start,
                end=start + BAR_MS,
                open=prices[0],
                high=max(prices),
                low=min(prices),
                close=prices[-1],
                volume=sum(one.qty for one in trades),
                trades=len(trades),
            )
