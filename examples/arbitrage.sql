-- Offers of the same currency that are worth buying at one bank and selling at another, within 20 seconds.
SELECT buy.ts, buy.currency, buy.broker AS buy_from, sell.broker AS sell_to, round(sell.price - buy.price, 2) AS gain
FROM bank1 AS buy JOIN bank2 AS sell ON buy.currency = sell.currency AND sell.price > buy.price + 12
WITHIN 20 SECONDS
